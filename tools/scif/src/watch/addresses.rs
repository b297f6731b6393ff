// SPDX-License-Identifier: GPL-2.0

//! The IP addresses of network devices, which the kernel tells over netlink (rtnetlink(7)).

use rustix::net::AddressFamily;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// The type of a message that ends a list.
const NLMSG_DONE: u16 = 3;
/// The type of a message with an error.
const NLMSG_ERROR: u16 = 2;
/// The type of a message with an address.
const RTM_NEWADDR: u16 = 20;
/// The type of a request for addresses.
const RTM_GETADDR: u16 = 22;
/// The flags of a request for a list.
const REQUEST_LIST: u16 = 0x301;
/// The attribute with the address, or with the peer's on a link between two.
const IFA_ADDRESS: u16 = 1;
/// The attribute with the address of this end.
const IFA_LOCAL: u16 = 2;
/// The numbers of the address families.
const INET: u8 = 2;
const INET6: u8 = 10;

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The number of the device.
    pub device: u32,
    /// The address.
    pub ip: IpAddr,
    /// The length of the prefix.
    pub prefix: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

/// Asks the kernel for all addresses of this network namespace.
pub fn read() -> io::Result<Vec<Address>> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    // A header of 16 bytes, and an `ifaddrmsg` of any family.
    let mut request = [0; 24];
    request[..4].copy_from_slice(&24u32.to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETADDR.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_LIST.to_ne_bytes());
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let (mut found, mut bytes) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let (count, _) = rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty())?;
        if count == 0 || !take(&bytes[..count], &mut found)? {
            return Ok(found);
        }
    }
}

/// Splits the first item off a list whose items begin with their length and are aligned to four
/// bytes. Returns its bytes and the rest.
fn split(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let item = bytes.get(..len)?;
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((item, rest))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Takes the addresses out of messages. Returns whether more messages follow.
fn take(mut bytes: &[u8], found: &mut Vec<Address>) -> io::Result<bool> {
    while let (Some(len), Some(kind)) = (word(bytes, 0), short(bytes, 4)) {
        let Some((message, rest)) = split(bytes, (len as usize).max(16)) else {
            break;
        };
        match kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let code = word(message, 16).map_or(0, |code| code as i32);
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            RTM_NEWADDR => found.extend(address(&message[16..])),
            _ => (),
        }
        bytes = rest;
    }
    Ok(true)
}

/// Returns the address of an `ifaddrmsg` with its attributes.
fn address(message: &[u8]) -> Option<Address> {
    let (family, prefix, device) = (message.first()?, message.get(1)?, word(message, 4)?);
    let (mut attributes, mut ip) = (message.get(8..)?, None);
    while let (Some(len), Some(kind)) = (short(attributes, 0), short(attributes, 2)) {
        let (attribute, rest) = split(attributes, usize::from(len).max(4))?;
        if kind == IFA_LOCAL || (kind == IFA_ADDRESS && ip.is_none()) {
            ip = parse(*family, &attribute[4..]);
        }
        attributes = rest;
    }
    Some(Address {
        device,
        ip: ip?,
        prefix: *prefix,
    })
}

fn parse(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        INET => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        INET6 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a message: its length and type, then its content and padding.
    fn message(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + content.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + content.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn new_address(family: u8, prefix: u8, device: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut content = vec![family, prefix, 0, 0];
        content.extend(device.to_ne_bytes());
        content.extend(attributes.concat());
        message(RTM_NEWADDR, &content)
    }

    #[test]
    fn addresses_of_both_families_are_taken() {
        let six = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let messages = [
            // On a link between two, the second attribute is this end's.
            new_address(
                INET,
                24,
                7,
                &[
                    attribute(IFA_ADDRESS, &[10, 9, 0, 2]),
                    attribute(IFA_LOCAL, &[10, 9, 0, 1]),
                    attribute(3, b"scif0\0"),
                    attribute(IFA_ADDRESS, &[10, 9, 0, 2]),
                ],
            ),
            new_address(INET6, 64, 8, &[attribute(IFA_ADDRESS, &six)]),
            // An address of another family, and messages of other types.
            new_address(28, 8, 9, &[attribute(IFA_LOCAL, &[1, 2])]),
            message(77, &[1, 2, 3]),
        ];
        let mut found = Vec::new();
        assert!(take(&messages.concat(), &mut found).unwrap());
        let texts: Vec<_> = found
            .iter()
            .map(|each| (each.device, each.to_string()))
            .collect();
        assert_eq!(
            texts,
            [(7, "10.9.0.1/24".to_owned()), (8, "fe80::1/64".to_owned())]
        );
        assert!(!take(&message(NLMSG_DONE, &[0; 4]), &mut found).unwrap());
        let error = take(&message(NLMSG_ERROR, &(-1i32).to_ne_bytes()), &mut found).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1));
    }

    #[test]
    fn cut_messages_are_no_addresses() {
        let whole = new_address(INET, 24, 7, &[attribute(IFA_LOCAL, &[10, 9, 0, 1])]);
        for len in 0..whole.len() {
            let mut found = Vec::new();
            assert!(take(&whole[..len], &mut found).unwrap());
            assert_eq!(found, [], "of {len} bytes");
        }
        // Lengths that are too small, or too large.
        for len in [0u32, 3, 15, 16, 20, u32::MAX] {
            let mut wrong = whole.clone();
            wrong[..4].copy_from_slice(&len.to_ne_bytes());
            let mut found = Vec::new();
            assert!(take(&wrong, &mut found).unwrap());
            assert_eq!(found, [], "of length {len}");
        }
    }

    /// Checks against the kernel, which lets a socket have only an address of a device.
    #[test]
    fn kernel_answers_with_addresses() {
        let found = read().unwrap();
        let is_there = std::net::UdpSocket::bind("127.0.0.1:0").is_ok();
        let has_own = found.iter().any(|each| each.to_string() == "127.0.0.1/8");
        assert_eq!(has_own, is_there, "{found:?}");
    }
}
