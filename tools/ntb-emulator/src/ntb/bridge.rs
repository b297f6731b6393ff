// SPDX-License-Identifier: GPL-2.0
//! What a family of bridges has to do: the registers of both ends of a link.
//!
//! A register access can concern both ends (doorbells, the peer's scratchpads, the state of
//! the link), so a family keeps the registers of both, and is only called with the whole
//! link locked.

use super::line::Ends;
use super::line::Line;
use super::window::WINDOWS;
use super::window::Window;
use crate::interrupt::Interrupts;
use crate::pci::ConfigSpace;

/// The registers of both ends of a link.
pub(super) trait Bridge: Send {
    /// The size of BAR 0, in which they are.
    fn size(&self) -> u64;

    /// The vectors of an end.
    fn interrupts(&self) -> Interrupts;

    /// The configuration space of an end with those windows.
    fn config_space(&self, end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace;

    /// Reads configuration space.
    fn config_read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]);

    /// Writes configuration space.
    fn config_write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]);

    /// Reads registers.
    fn read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]);

    /// Writes registers.
    fn write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]);

    /// Whether the driver of an end wants the link up.
    fn wants_link(&self, line: &Line<'_>, end: usize) -> bool;

    /// Something may have changed at either end; `switched` says that the link has come up
    /// or gone down. Tells the guests what they are to know.
    fn settle(&mut self, line: &mut Line<'_>, switched: bool);

    /// A doorbell that was rung at the other end arrives.
    fn arrive(&mut self, line: &mut Line<'_>, end: usize, source: usize);

    /// The function of an end was reset.
    fn reset(&mut self, end: usize);

    /// Where a window of an end, of that size, leads to in the memory of the other one, and
    /// how many bytes of it may be used.
    fn translation(&self, state: &Ends, end: usize, window: usize, size: u64) -> (u64, u64);
}
