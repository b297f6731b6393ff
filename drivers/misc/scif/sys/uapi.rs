// SPDX-License-Identifier: GPL-2.0

//! The interface to user space: `linux/scif_ioctl.h`, as bindgen reads it.
//!
//! Nothing of it is written down here, so it cannot differ from the header. Other layouts of the
//! same calls are declared with [`user_structure`].
//!
//! The structures that come from user space are read whole. They are not written back whole, since
//! some end in padding, which would carry kernel memory out: each result has its [`Place`].

use core::marker::PhantomData;

use kernel::{
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::bindings as own;

#[allow(unused_imports)]
pub(crate) use own::{
    scif_port_id,
    scifioctl_accept,
    scifioctl_connect,
    scifioctl_copy,
    scifioctl_fence_mark,
    scifioctl_fence_signal,
    scifioctl_msg,
    scifioctl_node_ids,
    scifioctl_reg,
    scifioctl_unreg,
    SCIF_ACCEPTREG,
    SCIF_ACCEPTREQ,
    SCIF_BIND,
    SCIF_CONNECT,
    SCIF_FENCE_MARK,
    SCIF_FENCE_SIGNAL,
    SCIF_FENCE_WAIT,
    SCIF_GET_NODEIDS,
    SCIF_LISTEN,
    SCIF_READFROM,
    SCIF_RECV,
    SCIF_REG,
    SCIF_SEND,
    SCIF_UNREG,
    SCIF_VREADFROM,
    SCIF_VWRITETO,
    SCIF_WRITETO, //
};

macro_rules! from_bytes {
    ($($name:ty),* $(,)?) => {
        $(
            // SAFETY: It consists of integers, for which every value is valid.
            unsafe impl FromBytes for $name {}
        )*
    };
}

from_bytes!(
    scif_port_id,
    scifioctl_accept,
    scifioctl_connect,
    scifioctl_copy,
    scifioctl_fence_mark,
    scifioctl_fence_signal,
    scifioctl_msg,
    scifioctl_node_ids,
    scifioctl_reg,
    scifioctl_unreg,
);

// SAFETY: Two `u16`: no padding.
unsafe impl AsBytes for scif_port_id {}

/// Reads a structure from user space.
pub(crate) fn read<T: FromBytes>(address: usize) -> Result<T> {
    UserSlice::new(UserPtr::from_addr(address), size_of::<T>())
        .reader()
        .read()
}

/// Writes a value to user space.
pub(crate) fn write<T: AsBytes>(address: usize, value: &T) -> Result {
    UserSlice::new(UserPtr::from_addr(address), size_of::<T>())
        .writer()
        .write(value)
}

/// A place in user space that a call puts a result into.
///
/// What a call has done can rarely be undone. So a result is only written to a place that was
/// found [`writable`](Self::writable), which is asked before anything is done.
pub(crate) struct Place<T> {
    address: usize,
    _type: PhantomData<fn() -> T>,
}

/// A [`Place`] that could be written to a moment ago; another thread may have changed that.
pub(crate) struct Writable<T>(Place<T>);

impl<T: FromBytes + AsBytes> Place<T> {
    /// The place at an address, which is untrusted.
    pub(crate) fn at(address: usize) -> Self {
        Self {
            address,
            _type: PhantomData,
        }
    }

    /// The field of a structure in user space; for [`place`].
    #[inline]
    pub(crate) fn of_field<S>(structure: usize, offset: usize, _: impl FnOnce(&S) -> &T) -> Self {
        Self::at(structure.wrapping_add(offset))
    }

    /// What is there.
    pub(crate) fn read(&self) -> Result<T> {
        read(self.address)
    }

    /// EFAULT if nothing can be written there. Leaves there what is there.
    pub(crate) fn writable(self) -> Result<Writable<T>> {
        write(self.address, &self.read()?)?;
        Ok(Writable(self))
    }
}

impl<T: FromBytes + AsBytes> Writable<T> {
    /// Writes the result.
    pub(crate) fn write(&self, value: &T) -> Result {
        write(self.0.address, value)
    }
}

/// The [`Place`] of a field of a structure in user space, of the field's type:
/// `place!(address, uapi::scifioctl_msg, out_len)`.
macro_rules! place {
    ($address:expr, $structure:ty, $field:ident) => {
        $crate::sys::uapi::Place::of_field(
            $address,
            ::core::mem::offset_of!($structure, $field),
            |structure: &$structure| &structure.$field,
        )
    };
}
pub(crate) use place;

/// Declares structures of integers that can be [`read`] from user space.
macro_rules! user_structure {
    ($(
        $(#[$attribute:meta])*
        struct $name:ident { $($field:ident: $type:ty),* $(,)? }
    )*) => {
        $(
            $(#[$attribute])*
            #[derive(Clone, Copy)]
            struct $name {
                $($field: $type),*
            }

            // SAFETY: Every value is valid for every field, by the bounds, so it is for all.
            unsafe impl ::kernel::transmute::FromBytes for $name
            where
                $($type: ::kernel::transmute::FromBytes),*
            {}
        )*
    };
}
pub(crate) use user_structure;

#[kunit_tests(scif_sys_uapi)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_those_of_the_header() {
        assert_eq!(size_of::<scif_port_id>(), 4);
        assert_eq!(size_of::<scifioctl_accept>(), 16);
        assert_eq!(size_of::<scifioctl_msg>(), 24);
        assert_eq!(size_of::<scifioctl_reg>(), 40);
        assert_eq!(size_of::<scifioctl_copy>(), 40);
        assert_eq!(SCIF_BIND, 0xc008_7301);
        assert_eq!(SCIF_FENCE_SIGNAL, 0xc028_7311);
    }
}
