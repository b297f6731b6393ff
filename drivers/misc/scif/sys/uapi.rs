// SPDX-License-Identifier: GPL-2.0

//! The interface to user space: `linux/scif_ioctl.h` and `linux/scif_services.h`, as bindgen reads
//! them.
//!
//! This file repeats nothing of the headers, so it can't differ from them.
//!
//! Structures are read from user space as a whole, except for padding at their end. They are never
//! written back as a whole, because such padding would leak kernel memory: each result has its own
//! [`ResultPtr`].

use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
};

use kernel::{
    bindings,
    error::to_result,
    page::PAGE_SIZE,
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

#[allow(unused_imports)]
pub(crate) use own::{
    scif_bind_name,
    scif_connect_name,
    scif_map_policy,
    scif_memory_create,
    scif_memory_register,
    scif_node_status,
    scif_remote_address,
    scif_send_all,
    SCIF_BIND_NAME,
    SCIF_CONNECT_NAME,
    SCIF_MAP_ONES_AFTER_LOSS,
    SCIF_MAP_POLICY,
    SCIF_MEMORY_CREATE,
    SCIF_MEMORY_DEVICE,
    SCIF_MEMORY_REGISTER,
    SCIF_NAME_ANY,
    SCIF_NODE_STATUS,
    SCIF_REMOTE_ADDRESS,
    SCIF_SEND_ALL,
    SCIF_SEND_ALL_BLOCK, //
};

macro_rules! from_bytes {
    ($($name:ty),* $(,)?) => {
        $(
            // SAFETY: The structure consists of integers, for which every value is valid.
            unsafe impl FromBytes for $name {}
        )*
    };
}

from_bytes!(
    scif_bind_name,
    scif_connect_name,
    scif_map_policy,
    scif_memory_create,
    scif_memory_register,
    scif_node_status,
    scif_port_id,
    scif_remote_address,
    scif_send_all,
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

// SAFETY: The structure consists of two `u16` without padding.
unsafe impl AsBytes for scif_port_id {}

/// Reads a structure from user space.
pub(crate) fn read<T: FromBytes>(address: usize) -> Result<T> {
    UserSlice::new(UserPtr::from_addr(address), size_of::<T>())
        .reader()
        .read()
}

/// Reads a structure whose last four bytes are padding, which 32-bit processes do not have.
pub(crate) fn read_unpadded<T: FromBytes>(address: usize) -> Result<T> {
    let len = const { size_of::<T>() - 4 };
    let mut value = MaybeUninit::<T>::zeroed();
    let from = UserPtr::from_addr(address).as_const_ptr();
    // SAFETY: `value` has room for so many bytes. As in the kernel crate's `UserSliceReader::read`,
    // the check of the destination by `copy_from_user` is not needed. This call checks the address
    // of user space.
    let left = unsafe { bindings::_copy_from_user(value.as_mut_ptr().cast(), from, len) };
    if left != 0 {
        return Err(EFAULT);
    }
    // SAFETY: All bytes but the zeroed padding were written, and every value is valid.
    Ok(unsafe { value.assume_init() })
}

/// Reads a structure that begins with its size, a `u32`, as the caller knows it. Fields that the
/// caller does not know count as zero. Bytes that the kernel does not know have to be zero.
///
/// # Errors
///
/// - `EINVAL`: the size is less than `least`, the bytes of the structure's first version, or more
///   than a page.
/// - `E2BIG`: a byte behind the kernel's structure is not zero.
/// - `EFAULT`: the memory can't be read.
pub(crate) fn read_sized<T: FromBytes>(address: usize, least: usize) -> Result<T> {
    let size = read::<u32>(address)? as usize;
    if size < least || size > PAGE_SIZE {
        return Err(EINVAL);
    }
    let mut value = MaybeUninit::<T>::uninit();
    let (to, from) = (value.as_mut_ptr().cast(), UserPtr::from_addr(address));
    // SAFETY: `value` has room for so many bytes; C checks the address of user space.
    to_result(unsafe {
        own::scif_helper_copy_struct_from_user(to, size_of::<T>(), from.as_const_ptr(), size)
    })?;
    // SAFETY: All of `value` was written, and every value is valid.
    Ok(unsafe { value.assume_init() })
}

/// Writes a value to user space.
pub(crate) fn write<T: AsBytes>(address: usize, value: &T) -> Result {
    if let Ok(bytes) = <[u8; 4]>::try_from(value.as_bytes()) {
        // Stores most results at once, without the search for a way to copy so few bytes.
        let (number, to) = (u32::from_ne_bytes(bytes), UserPtr::from_addr(address));
        // SAFETY: The helper checks the address.
        return to_result(unsafe { own::scif_helper_put_user_u32(number, to.as_mut_ptr().cast()) });
    }
    UserSlice::new(UserPtr::from_addr(address), size_of::<T>())
        .writer()
        .write(value)
}

/// A pointer to user memory in which a call leaves a result.
///
/// Most calls can't be undone. So a result is only written through a pointer that was found
/// [`writable`](Self::writable) before the call did anything.
pub(crate) struct ResultPtr<T> {
    address: usize,
    _type: PhantomData<fn() -> T>,
}

/// A [`ResultPtr`] that could be written to a moment ago. Another thread may have unmapped it
/// since.
pub(crate) struct Writable<T>(ResultPtr<T>);

impl<T: FromBytes + AsBytes> ResultPtr<T> {
    /// Makes a pointer from an address, which is untrusted.
    pub(crate) fn at(address: usize) -> Self {
        Self {
            address,
            _type: PhantomData,
        }
    }

    /// Makes a pointer to a field of a structure in user space, for [`result_ptr`].
    #[inline]
    pub(crate) fn of_field<S>(structure: usize, offset: usize, _: impl FnOnce(&S) -> &T) -> Self {
        Self::at(structure.wrapping_add(offset))
    }

    /// Reads the value at the pointer.
    pub(crate) fn read(&self) -> Result<T> {
        read(self.address)
    }

    /// Checks that the memory can be written to, and leaves its value unchanged. Returns EFAULT if
    /// it can't.
    pub(crate) fn writable(self) -> Result<Writable<T>> {
        let value = self.read()?;
        self.writable_holding(&value)
    }

    /// Checks the memory as [`Self::writable`] does, for a caller that has read its value.
    pub(crate) fn writable_holding(self, value: &T) -> Result<Writable<T>> {
        write(self.address, value)?;
        Ok(Writable(self))
    }
}

impl<T: FromBytes + AsBytes> Writable<T> {
    /// Writes the result.
    pub(crate) fn write(&self, value: &T) -> Result {
        write(self.0.address, value)
    }
}

/// Makes the [`ResultPtr`] to a field of a structure in user space, with the field's type:
/// `result_ptr!(address, uapi::scifioctl_msg, out_len)`.
macro_rules! result_ptr {
    ($address:expr, $structure:ty, $field:ident) => {
        $crate::sys::uapi::ResultPtr::of_field(
            $address,
            ::core::mem::offset_of!($structure, $field),
            |structure: &$structure| &structure.$field,
        )
    };
}
pub(crate) use result_ptr;

#[kunit_tests(scif_sys_uapi)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn uapi_layouts_match_the_header() {
        assert_eq!(size_of::<scif_port_id>(), 4);
        assert_eq!(size_of::<scifioctl_accept>(), 16);
        assert_eq!(size_of::<scifioctl_msg>(), 24);
        assert_eq!(size_of::<scifioctl_reg>(), 40);
        assert_eq!(size_of::<scifioctl_copy>(), 40);
        // `read_unpadded` depends on these layouts.
        assert_eq!(offset_of!(scifioctl_msg, out_len), 16);
        assert_eq!(offset_of!(scifioctl_copy, flags), 32);
        assert_eq!(offset_of!(scifioctl_fence_signal, flags), 32);
        assert_eq!(offset_of!(scifioctl_node_ids, len), 16);
        assert_eq!(size_of::<scifioctl_fence_signal>(), 40);
        assert_eq!(size_of::<scifioctl_node_ids>(), 24);
        assert_eq!(SCIF_BIND, 0xc008_7301);
        assert_eq!(SCIF_FENCE_SIGNAL, 0xc028_7311);
    }
}
