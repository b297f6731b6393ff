// SPDX-License-Identifier: GPL-2.0
//! The interface of a family of bridges: the registers of both ends of a link.
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
    /// Returns the size of BAR 0, which holds the registers.
    fn size(&self) -> u64;

    /// Returns the vectors of an end.
    fn interrupts(&self) -> Interrupts;

    /// Returns the configuration space of an end with those windows.
    fn config_space(&self, end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace;

    /// Reads configuration space.
    fn config_read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]);

    /// Writes configuration space.
    fn config_write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]);

    /// Reads registers.
    fn read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]);

    /// Writes registers.
    fn write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]);

    /// Returns whether the driver of an end wants the link up.
    fn wants_link(&self, line: &Line<'_>, end: usize) -> bool;

    /// Handles a possible change at either end, and notifies the guests. `switched` says that the
    /// link has come up or gone down.
    fn settle(&mut self, line: &mut Line<'_>, switched: bool);

    /// Delivers a doorbell that the other end has rung.
    fn arrive(&mut self, line: &mut Line<'_>, end: usize, source: usize);

    /// Resets the function of an end.
    fn reset(&mut self, end: usize);

    /// Returns where a window of an end leads to in the memory of the other one, and how many bytes
    /// of it may be used. `size` is the size of the window.
    fn translation(&self, state: &Ends, end: usize, window: usize, size: u64) -> (u64, u64);
}
