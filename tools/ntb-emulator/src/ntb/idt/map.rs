// SPDX-License-Identifier: GPL-2.0
//! The places of the registers. Those of a function are in its configuration space, of which BAR 0
//! is a view. Those of the switch are reached by address and data registers of a function.
//!
//! All have 32 bits.

/// The port of each end.
pub(super) const PORTS: [u64; 2] = [0, 2];
/// The partition of each end.
pub(super) const PARTITIONS: [u64; 2] = [0, 1];
/// Number of message registers of a function.
pub(super) const MESSAGES: usize = 4;
/// Number of BARs of a function.
pub(super) const BARS: usize = 6;
/// Number of registers of each BAR.
const BAR_REGISTERS: usize = 4;
/// The size of the configuration space of a function, and of BAR 0.
pub(super) const SPACE: u64 = 0x1000;
/// Below this offset, configuration space is that of any function.
const OWN: u64 = 0x400;

/// A register of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    /// The configuration space at this offset.
    Config(u64),
    /// NTCTL.
    Control,
    /// NTINTSTS, the conditions to report.
    Interrupts,
    /// NTINTMSK.
    InterruptMask,
    /// NTGSIGNAL, a signal to all partitions.
    Signal,
    /// OUTDBELLSET, sets doorbells.
    Ring,
    /// INDBELLSTS, write 1 to clear.
    Doorbells,
    /// INDBELLMSK.
    DoorbellMask,
    /// OUTMSGx.
    Out(usize),
    /// INMSGx.
    In(usize),
    /// INMSGSRCx, the partition that sent a message.
    Source(usize),
    /// MSGSTS, write 1 to clear.
    Messages,
    /// MSGSTSMSK.
    MessageMask,
    /// BARSETUPx.
    Setup(usize),
    /// BARLIMITx.
    Limit(usize),
    /// BARLTBASEx.
    Lower(usize),
    /// BARUTBASEx.
    Upper(usize),
    /// NTMTBLADDR, the index of an entry of the mapping table.
    EntryIndex,
    /// NTMTBLDATA, the entry.
    Entry,
    /// REQIDCAP, the requester that reads the register.
    Requester,
    /// GASAADDR, the address of a register of the switch.
    GlobalAddress,
    /// GASADATA, the register.
    GlobalData,
}

/// A register of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    /// A register of the function of an end.
    Function(usize, Register),
    /// SWPARTxSTS, of the partition of an end.
    Partition(usize),
    /// SWPORTxSTS, of the port of an end.
    Port(usize),
    /// SESTS, the kinds of events that have happened.
    Events,
    /// SEMSK.
    EventMask,
    /// SEPMSK, the partitions that are not told.
    PartitionMask,
    /// The status of a kind of event: the ports or partitions; write 1 to clear.
    EventStatus(Event),
    /// The ports or partitions that do not count for a kind of event.
    EventStatusMask(Event),
    /// GDBELLSTS.
    Doorbells,
    /// SWPxMSGCTLx, the target of a message of an end.
    Route(usize, usize),
    /// TMPCTL to TMPADJ, the sensor of temperature.
    Sensor(usize),
}

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A port's link has come up.
    LinkUp,
    /// A port's link has gone down.
    LinkDown,
    /// A partition has sent a signal.
    Signal,
}

/// All kinds of events.
pub(super) const EVENTS: [Event; 3] = [Event::LinkUp, Event::LinkDown, Event::Signal];

/// Returns the index of a register in a range that begins at `start`.
fn index(offset: u64, start: u64) -> usize {
    ((offset - start) / 4) as usize
}

impl Register {
    /// Returns the register at an offset of configuration space, if there is one.
    pub(super) fn at(offset: u64) -> Option<Self> {
        let register = match offset & !3 {
            at if at < OWN => Self::Config(at),
            0x400 => Self::Control,
            0x404 => Self::Interrupts,
            0x408 => Self::InterruptMask,
            0x410 => Self::Signal,
            0x420 => Self::Ring,
            0x428 => Self::Doorbells,
            0x42c => Self::DoorbellMask,
            at @ 0x430..0x440 => Self::Out(index(at, 0x430)),
            at @ 0x440..0x450 => Self::In(index(at, 0x440)),
            at @ 0x450..0x460 => Self::Source(index(at, 0x450)),
            0x460 => Self::Messages,
            0x464 => Self::MessageMask,
            at @ 0x470..0x4d0 => {
                let (bar, which) = (
                    index(at, 0x470) / BAR_REGISTERS,
                    index(at, 0x470) % BAR_REGISTERS,
                );
                [Self::Setup, Self::Limit, Self::Lower, Self::Upper][which](bar)
            }
            0x4d0 => Self::EntryIndex,
            0x4d8 => Self::Entry,
            0x4dc => Self::Requester,
            0xff8 => Self::GlobalAddress,
            0xffc => Self::GlobalData,
            _ => return None,
        };
        Some(register)
    }
}

impl Global {
    /// Returns the register at an address of the switch, if there is one.
    pub(super) fn at(address: u64) -> Option<Self> {
        let register = match address & !3 {
            at @ ..0x3_0000 => {
                // Each port has the space of a bridge, and then that of its function.
                let (space, offset) = (at / SPACE, at % SPACE);
                let end = PORTS.iter().position(|port| 2 * port + 1 == space)?;
                Self::Function(end, Register::at(offset)?)
            }
            at @ 0x3_e100..0x3_e200 => match at % 0x20 {
                0x4 => Self::Partition(PARTITIONS.iter().position(|p| p * 0x20 == at - 0x3_e104)?),
                _ => return None,
            },
            at @ 0x3_e200..0x3_e600 => match at % 0x20 {
                0x4 => Self::Port(PORTS.iter().position(|p| p * 0x20 == at - 0x3_e204)?),
                _ => return None,
            },
            0x3_ec00 => Self::Events,
            0x3_ec04 => Self::EventMask,
            0x3_ec08 => Self::PartitionMask,
            0x3_ec0c => Self::EventStatus(Event::LinkUp),
            0x3_ec10 => Self::EventStatusMask(Event::LinkUp),
            0x3_ec14 => Self::EventStatus(Event::LinkDown),
            0x3_ec18 => Self::EventStatusMask(Event::LinkDown),
            0x3_ec30 => Self::EventStatus(Event::Signal),
            0x3_ec34 => Self::EventStatusMask(Event::Signal),
            0x3_ec3c => Self::Doorbells,
            at @ 0x3_ee00..0x3_ee80 => {
                let (message, partition) = ((at - 0x3_ee00) / 0x20, (at - 0x3_ee00) % 0x20 / 4);
                let end = PARTITIONS.iter().position(|p| *p == partition)?;
                Self::Route(end, message as usize)
            }
            at @ 0x3_f1d4..0x3_f1e4 => Self::Sensor(index(at, 0x3_f1d4)),
            _ => return None,
        };
        Some(register)
    }
}
