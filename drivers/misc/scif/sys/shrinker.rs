// SPDX-License-Identifier: GPL-2.0

//! Shrinkers, which the kernel asks to free memory when it is short of it.
//!
//! C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    ffi::c_void,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// An owner of memory that can be freed.
/// Context: both functions are called in any task that needs memory. They must not take a lock that
/// is held while memory is allocated, and must not allocate memory.
pub(crate) trait Shrink: Send + Sync + 'static {
    /// Returns the number of objects that could be freed.
    fn count(&self) -> usize;

    /// Frees so many objects, now or soon. Returns how many.
    fn scan(this: ArcBorrow<'_, Self>, count: usize) -> usize;
}

/// A registered shrinker. The drop waits for running calls of its target.
///
/// # Invariants
///
/// `raw` is a registered shrinker, which only `Drop` frees. Its `private_data` is `target`.
pub(crate) struct Shrinker<T: Shrink> {
    raw: NonNull<bindings::shrinker>,
    _target: Arc<T>,
}

// SAFETY: A shrinker belongs to no thread.
unsafe impl<T: Shrink> Send for Shrinker<T> {}
// SAFETY: No method takes `&self`.
unsafe impl<T: Shrink> Sync for Shrinker<T> {}

impl<T: Shrink> Shrinker<T> {
    /// Registers `target`, which is asked for memory from now on.
    /// Context: may sleep.
    pub(crate) fn register(name: &CStr, target: Arc<T>) -> Result<Self> {
        // SAFETY: The format takes one string, which is copied.
        let raw = unsafe { bindings::shrinker_alloc(0, c"%s".as_char_ptr(), name.as_char_ptr()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The shrinker has just been allocated, and is not registered yet. The target
        // exists until the shrinker has been freed.
        unsafe {
            let shrinker = raw.as_ptr();
            (*shrinker).count_objects = Some(Self::count);
            (*shrinker).scan_objects = Some(Self::scan);
            (*shrinker).seeks = bindings::DEFAULT_SEEKS as c_int;
            (*shrinker).private_data = Arc::as_ptr(&target).cast_mut().cast();
            bindings::shrinker_register(shrinker);
        }
        // INVARIANT: The shrinker has just been registered.
        Ok(Self {
            raw,
            _target: target,
        })
    }

    /// # Safety
    ///
    /// `shrinker` belongs to a `Shrinker<T>`, which exists while `'a` lasts.
    unsafe fn target<'a>(shrinker: *mut bindings::shrinker) -> ArcBorrow<'a, T> {
        // SAFETY: By the contract of this function and the type invariant.
        unsafe {
            let target: *const c_void = (*shrinker).private_data;
            ArcBorrow::from_raw(target.cast())
        }
    }

    /// # Safety
    ///
    /// The contract is that of [`Self::target`].
    unsafe extern "C" fn count(
        shrinker: *mut bindings::shrinker,
        _control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: By the contract of this function; C waits for this before it frees a shrinker.
        unsafe { Self::target(shrinker) }.count()
    }

    /// # Safety
    ///
    /// The contract is that of [`Self::target`], and `control` is valid.
    unsafe extern "C" fn scan(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: By the contract of this function.
        let wanted = unsafe { (*control).nr_to_scan };
        // SAFETY: By the contract of this function; C waits for this before it frees a shrinker.
        T::scan(unsafe { Self::target(shrinker) }, wanted)
    }
}

impl<T: Shrink> Drop for Shrinker<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. When this returns, no call of the target is running, and
        // none comes later.
        unsafe { bindings::shrinker_free(self.raw.as_ptr()) };
    }
}
