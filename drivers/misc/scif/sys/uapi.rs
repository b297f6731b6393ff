// SPDX-License-Identifier: GPL-2.0

//! The interface to user space: `linux/scif_ioctl.h`, as bindgen reads it.
//!
//! Nothing of it is written down here, so it cannot differ from the header.
//!
//! The structures that come from user space are read whole. They are not written back whole, since
//! some end in padding, which would carry kernel memory out: [`write_field`] writes what changed.

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

/// Writes one field of a structure in user space: `write_field!(address, scifioctl_msg, out_len, n)`.
///
/// Evaluates to a `Result`. The value has the type of the field.
#[allow(unused_macros)]
macro_rules! write_field {
    ($address:expr, $structure:ident, $field:ident, $value:expr) => {{
        let value = $crate::sys::uapi::typed(|s: &$crate::sys::uapi::$structure| &s.$field, $value);
        let offset = ::core::mem::offset_of!($crate::sys::uapi::$structure, $field);
        $crate::sys::uapi::write(usize::wrapping_add($address, offset), &value)
    }};
}
#[allow(unused_imports)]
pub(crate) use write_field;

/// Makes a value of another type than the field's an error.
#[inline]
pub(crate) fn typed<S, F>(_field: impl FnOnce(&S) -> &F, value: F) -> F {
    value
}

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
        assert_eq!(typed(|m: &scifioctl_msg| &m.out_len, 5), 5);
        assert_eq!(SCIF_BIND, 0xc008_7301);
        assert_eq!(SCIF_FENCE_SIGNAL, 0xc028_7311);
    }
}
