// SPDX-License-Identifier: GPL-2.0
//! The registers of a function and of the switch while a guest accesses them, with the whole
//! link locked.

use super::map::Global;
use super::map::Register;
use super::switch::Switch;
use crate::mmio::Located;
use crate::mmio::RegisterBlock;
use crate::mmio::merge;
use crate::ntb::line::Line;

/// The registers as one end accesses them.
pub(super) struct Block<'a, 'b> {
    switch: &'a mut Switch,
    line: &'a mut Line<'b>,
    end: usize,
}

impl<'a, 'b> Block<'a, 'b> {
    /// Makes the block for accesses by an end.
    pub(super) fn new(switch: &'a mut Switch, line: &'a mut Line<'b>, end: usize) -> Self {
        Self { switch, line, end }
    }

    /// Reads a register of the function of an end.
    fn function_read(&mut self, end: usize, register: Register) -> u32 {
        let doorbells = self.switch.doorbells;
        let function = &self.switch.functions[end];
        match register {
            Register::Config(offset) => {
                let mut data = [0; 4];
                self.line.config(end).read(offset, &mut data);
                u32::from_le_bytes(data)
            }
            Register::Control => function.control,
            Register::Interrupts => function.interrupts(doorbells),
            Register::InterruptMask => function.interrupt_mask(),
            Register::Doorbells => doorbells,
            Register::DoorbellMask => function.doorbell_mask,
            Register::Out(index) => function.out[index],
            Register::In(index) => function.inbox[index].0,
            Register::Source(index) => function.inbox[index].1,
            Register::Messages => function.messages(),
            Register::MessageMask => function.message_mask(),
            Register::Setup(bar) => function.setup(bar),
            Register::Limit(bar) => function.limit(bar),
            Register::Lower(bar) => function.base(bar, 0),
            Register::Upper(bar) => function.base(bar, 1),
            Register::EntryIndex => function.entry,
            Register::Entry => self.switch.entry(function.entry),
            Register::GlobalAddress => function.address,
            // The guest's root complex, whose number is 0, makes the request.
            Register::Requester | Register::Signal | Register::Ring | Register::GlobalData => 0,
        }
    }

    /// Writes a register of the function of an end.
    fn function_write(&mut self, end: usize, register: Register, value: u32) {
        let function = &mut self.switch.functions[end];
        match register {
            Register::Control => function.control = value,
            Register::Interrupts => function.clear_interrupts(value),
            Register::InterruptMask => function.set_interrupt_mask(value),
            Register::Signal if value & 1 != 0 => self.switch.signal(end),
            Register::Ring => self.switch.ring(self.line, end, value),
            Register::Doorbells => self.switch.doorbells &= !value,
            Register::DoorbellMask => function.doorbell_mask = value,
            Register::Out(index) => self.switch.send(self.line, end, index, value),
            Register::Messages => function.clear_messages(value),
            Register::MessageMask => function.set_message_mask(value),
            Register::Setup(bar) => function.set_setup(bar, value),
            Register::Limit(bar) => function.set_limit(bar, value),
            Register::Lower(bar) => function.set_base(bar, 0, value),
            Register::Upper(bar) => function.set_base(bar, 1, value),
            Register::EntryIndex => function.entry = value,
            Register::Entry => {
                let index = function.entry;
                self.switch.set_entry(index, value);
            }
            Register::GlobalAddress => function.address = value,
            // QEMU has the guest's view of configuration space, and would not learn of the write.
            Register::Config(_)
            | Register::Signal
            | Register::In(_)
            | Register::Source(_)
            | Register::Requester
            | Register::GlobalData => {}
        }
    }

    /// Returns the register of the switch that this end has chosen.
    fn chosen(&self) -> Option<Global> {
        Global::at(self.switch.functions[self.end].address.into())
    }

    fn global_read(&mut self, register: Global) -> u32 {
        let events = &mut self.switch.events;
        match register {
            Global::Function(end, register) => self.function_read(end, register),
            Global::Partition(_) => Switch::ACTIVE,
            Global::Port(end) => self.switch.port(self.line, self.end, end),
            Global::Events => events.status(),
            Global::EventMask => events.mask,
            Global::PartitionMask => events.partitions,
            Global::EventStatus(event) => *events.of(event),
            Global::EventStatusMask(event) => *events.mask_of(event),
            Global::Doorbells => self.switch.doorbells,
            Global::Route(end, index) => self.switch.routes[end][index],
            Global::Sensor(index) => self.switch.sensor[index],
        }
    }

    fn global_write(&mut self, register: Global, value: u32) {
        let events = &mut self.switch.events;
        match register {
            Global::Function(end, register) => self.function_write(end, register, value),
            Global::EventMask => events.mask = value,
            Global::PartitionMask => events.partitions = value,
            Global::EventStatus(event) => *events.of(event) &= !value,
            Global::EventStatusMask(event) => *events.mask_of(event) = value,
            Global::Route(end, index) => self.switch.routes[end][index] = value & Switch::ROUTE,
            Global::Sensor(index) if index != Switch::TEMPERATURE => {
                self.switch.sensor[index] = value;
            }
            Global::Partition(_)
            | Global::Port(_)
            | Global::Events
            | Global::Doorbells
            | Global::Sensor(_) => {}
        }
    }
}

/// Returns whether a write acts on each bit that is 1. Bits that a narrow write leaves out are then
/// 0.
fn takes_bits(register: Register) -> bool {
    matches!(
        register,
        Register::Interrupts
            | Register::Signal
            | Register::Ring
            | Register::Doorbells
            | Register::Messages
            | Register::Out(_)
    )
}

impl RegisterBlock for Block<'_, '_> {
    type Register = Register;

    fn locate(&self, offset: u64) -> Option<Located<Register>> {
        Some(Located {
            register: Register::at(offset)?,
            start: offset & !3,
            width: 4,
        })
    }

    fn read(&mut self, register: Register) -> u64 {
        let value = match (register, self.chosen()) {
            (Register::GlobalData, Some(global)) => self.global_read(global),
            (register, _) => self.function_read(self.end, register),
        };
        value.into()
    }

    fn write(&mut self, register: Register, value: u64, mask: u64) {
        match (register, self.chosen()) {
            (Register::GlobalData, Some(global)) => self.global_write(global, value as u32),
            (register, _) => {
                let value = match takes_bits(register) {
                    true => value,
                    false => merge(self.function_read(self.end, register).into(), value, mask),
                };
                self.function_write(self.end, register, value as u32);
            }
        }
    }
}
