// SPDX-License-Identifier: GPL-2.0
//! Where the registers are: those of a function, in its configuration space, of which BAR 0 is
//! a view; and those of the switch, which a function reaches by address and data.
//!
//! All have 32 bits.

/// The port of each end.
pub(super) const PORTS: [u64; 2] = [0, 2];
/// The partition of each end.
pub(super) const PARTITIONS: [u64; 2] = [0, 1];
/// How many message registers a function has.
pub(super) const MESSAGES: usize = 4;
/// How many BARs a function has.
pub(super) const BARS: usize = 6;
/// How many registers each BAR has.
const BAR_REGISTERS: usize = 4;
/// The size of the configuration space of a function, and of BAR 0.
pub(super) const SPACE: u64 = 0x1000;
/// Below, configuration space is as with other functions.
const OWN: u64 = 0x400;

/// A register of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    /// What is at that offset of configuration space.
    Config(u64),
    /// NTCTL.
    Control,
    /// NTINTSTS, what there is to be told.
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
    /// INMSGSRCx, the partition that a message is from.
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
    /// NTMTBLADDR, which entry of the mapping table.
    EntryIndex,
    /// NTMTBLDATA, that entry.
    Entry,
    /// REQIDCAP, who reads it.
    Requester,
    /// GASAADDR, which register of the switch.
    GlobalAddress,
    /// GASADATA, that register.
    GlobalData,
}

/// A register of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    /// One of the function of an end.
    Function(usize, Register),
    /// SWPARTxSTS, of the partition of an end.
    Partition(usize),
    /// SWPORTxSTS, of the port of an end.
    Port(usize),
    /// SESTS, which events there are.
    Events,
    /// SEMSK.
    EventMask,
    /// SEPMSK, which partitions are not told.
    PartitionMask,
    /// The status of a kind of event: which ports or partitions; write 1 to clear.
    EventStatus(Event),
    /// Which of them do not count.
    EventStatusMask(Event),
    /// GDBELLSTS.
    Doorbells,
    /// SWPxMSGCTLx, where a message of an end goes to.
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

/// Those there are.
pub(super) const EVENTS: [Event; 3] = [Event::LinkUp, Event::LinkDown, Event::Signal];

/// Of a range that begins at `start`, the index of a register.
fn index(offset: u64, start: u64) -> usize {
    ((offset - start) / 4) as usize
}

impl Register {
    /// The register at an offset of configuration space, if there is one.
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
    /// The register at an address of the switch, if there is one.
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
