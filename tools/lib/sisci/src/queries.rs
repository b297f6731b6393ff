// SPDX-License-Identifier: LGPL-2.1

//! `SCIQuery()`: queries of adapters, segments and this library.

use std::ffi::c_char;
use std::ffi::c_void;

use crate::dma::MOST_ENTRIES;
use crate::error::Error;
use crate::error::Result;
use crate::handles::Handle;
use crate::local_segment;
use crate::local_segment::GROUPS;
use crate::maps;
use crate::maps::Kind;
use crate::maps::MAPS;
use crate::memory;
use crate::nodes;
use crate::remote_segment;

/// The answer to `SCI_Q_API`.
pub const API: &str = "SISCI API version 2.0 of SCIF for Linux";
/// The answer to `SCI_Q_VENDORID`.
pub const VENDOR: &str = "SCIF for Linux";

/// `sci_query_string_t`
#[repr(C)]
pub struct Text {
    text: *mut c_char,
    length: u32,
}

/// `sci_query_adapter_t`
#[repr(C)]
pub struct Adapter {
    number: u32,
    port: u32,
    subcommand: u32,
    data: *mut c_void,
}

/// `sci_query_system_t`
#[repr(C)]
pub struct System {
    subcommand: u32,
    data: *mut c_void,
}

/// `sci_query_local_segment_t`, `sci_query_remote_segment_t`, `sci_query_map_t`
#[repr(C)]
pub struct Resource {
    handle: Handle,
    subcommand: u32,
    data: u64,
}

/// `sci_query_dma_t`
#[repr(C)]
pub struct Dma {
    adapter: u32,
    subcommand: u32,
    data: *mut c_void,
}

/// `sci_dma_capabilities_t`
#[repr(C)]
pub struct DmaCapabilities {
    channels: u32,
    most_bytes: u32,
    most_entries: u32,
    to_remote: u32,
    from_remote: u32,
    remote_to_remote: u32,
    least_alignment: u32,
    good_alignment: u32,
}

/// Answers a query, by the number of its command.
///
/// # Safety
///
/// `data` is null, or points to the structure of the command. Each pointer in it is null, or points
/// to room for the result of its subcommand.
pub unsafe fn query(command: u32, data: *mut c_void) -> Result<()> {
    if data.is_null() {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    // SAFETY: `data` points to the structure of the command, by the contract of this function.
    unsafe {
        match command {
            1 => adapter(&*data.cast()),
            2 => system(&*data.cast()),
            3 => local(&mut *data.cast()),
            4 => remote(&mut *data.cast()),
            5 => map(&mut *data.cast()),
            6 => string(&*data.cast(), VENDOR),
            7 => string(&*data.cast(), API),
            8 => dma(&*data.cast()),
            _ => Err(Error::ILLEGAL_QUERY),
        }
    }
}

/// # Safety
///
/// See [`query`].
unsafe fn string(query: &Text, text: &str) -> Result<()> {
    let room = query.length as usize;
    if query.text.is_null() || room == 0 {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    // Text that does not fit is cut off, as strncpy() and a zero would do.
    let count = text.len().min(room - 1);
    // SAFETY: The buffer has room for `length` bytes, by the contract.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr().cast(), query.text, count);
        *query.text.add(count) = 0;
    }
    Ok(())
}

/// # Safety
///
/// See [`query`].
unsafe fn put(data: *mut c_void, value: u32) -> Result<()> {
    if data.is_null() {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    // SAFETY: The pointer is that of an unsigned int, by the contract.
    unsafe { data.cast::<u32>().write_unaligned(value) };
    Ok(())
}

/// # Safety
///
/// See [`query`].
unsafe fn adapter(query: &Adapter) -> Result<()> {
    nodes::check_adapter(query.number)?;
    let value = match query.subcommand {
        // Bridges of other makers have no such numbers.
        1 | 2 => return Err(Error::NOT_SUPPORTED),
        3 => nodes::sisci_id(nodes::own()?),
        4 => u32::from(nodes::links()? > 0),
        5 => 1,
        6 => u32::try_from(nodes::links()?).unwrap_or(u32::MAX),
        // The values differ from link to link: scif doctor shows each.
        7..=10 => return Err(Error::NOT_SUPPORTED),
        11 => 1,
        // The alignment of maps; DMA takes any.
        12 => maps::GRAIN as u32,
        13 => u32::MAX,
        14 => 4096,
        15 => 64,
        16 => GROUPS,
        _ => return Err(Error::ILLEGAL_QUERY),
    };
    // SAFETY: By the contract of this function.
    unsafe { put(query.data, value) }
}

/// # Safety
///
/// See [`query`].
unsafe fn system(query: &System) -> Result<()> {
    let value = match query.subcommand {
        1 => return Err(Error::NOT_SUPPORTED),
        2 | 3 => 1,
        4 => 1,
        _ => return Err(Error::ILLEGAL_QUERY),
    };
    // SAFETY: By the contract of this function.
    unsafe { put(query.data, value) }
}

fn local(query: &mut Resource) -> Result<()> {
    let segment = local_segment::get(query.handle)?;
    match query.subcommand {
        // Other hosts reach the segment by addresses that differ from link to link.
        1 | 2 => Err(Error::NOT_SUPPORTED),
        3 => {
            query.data = segment
                .memory
                .get()?
                .address()
                .ok_or(Error::NOT_SUPPORTED)?;
            Ok(())
        }
        _ => Err(Error::ILLEGAL_QUERY),
    }
}

fn remote(query: &mut Resource) -> Result<()> {
    let segment = remote_segment::get(query.handle)?;
    match query.subcommand {
        1 => {
            if segment.is_broadcast() {
                return Err(Error::NOT_SUPPORTED);
            }
            let channel = segment.import()?.channel()?;
            let size = memory::in_pages(segment.size() as usize)?;
            query.data = channel.endpoint.device_address(0, size as u64)?;
            Ok(())
        }
        _ => Err(Error::ILLEGAL_QUERY),
    }
}

fn map(query: &mut Resource) -> Result<()> {
    let map = MAPS.get(query.handle)?;
    match query.subcommand {
        1 => query.data = u64::from(matches!(map.kind(), Kind::Local(..))),
        2 => query.data = u64::from(map.node()? == nodes::own()?),
        3 => match map.kind() {
            Kind::Remote(_, import, _) => {
                let offset = i64::try_from(map.offset()).map_err(|_| Error::OUT_OF_RANGE)?;
                let endpoint = &import.channel()?.endpoint;
                query.data = endpoint.device_address(offset, map.size() as u64)?;
            }
            Kind::Local(..) | Kind::Broadcast(..) => return Err(Error::NOT_SUPPORTED),
        },
        _ => return Err(Error::ILLEGAL_QUERY),
    }
    Ok(())
}

/// # Safety
///
/// See [`query`].
unsafe fn dma(query: &Dma) -> Result<()> {
    nodes::check_adapter(query.adapter)?;
    if query.subcommand != 1 {
        return Err(Error::ILLEGAL_QUERY);
    }
    if query.data.is_null() {
        return Err(Error::ILLEGAL_PARAMETER);
    }
    let capabilities = DmaCapabilities {
        channels: 1,
        most_bytes: u32::MAX,
        most_entries: MOST_ENTRIES as u32,
        to_remote: 1,
        from_remote: 1,
        remote_to_remote: 0,
        least_alignment: 1,
        good_alignment: 64,
    };
    // SAFETY: The pointer is that of such a structure, by the contract.
    unsafe {
        query
            .data
            .cast::<DmaCapabilities>()
            .write_unaligned(capabilities)
    };
    Ok(())
}
