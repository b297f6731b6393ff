// SPDX-License-Identifier: GPL-2.0

//! Being asked for memory when the kernel is short of it.
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

/// Who has memory to give.
///
/// Both are called by whoever needs memory, anywhere: they must not take a lock that is held while
/// memory is allocated, and not allocate.
pub(crate) trait Shrink: Send + Sync + 'static {
    /// How many objects could be given.
    fn count(&self) -> usize;

    /// Gives so many, now or soon. Returns how many.
    fn scan(this: ArcBorrow<'_, Self>, count: usize) -> usize;
}

/// Has a [`Shrink`] asked, until it is dropped, which waits for calls that are running.
///
/// # Invariants
///
/// `raw` is a registered shrinker that is freed in `Drop` and nowhere else; its `private_data` is
/// `target`.
pub(crate) struct Shrinker<T: Shrink> {
    raw: NonNull<bindings::shrinker>,
    _target: Arc<T>,
}

// SAFETY: A shrinker belongs to no thread.
unsafe impl<T: Shrink> Send for Shrinker<T> {}
// SAFETY: Nothing can be done with it through `&self`.
unsafe impl<T: Shrink> Sync for Shrinker<T> {}

impl<T: Shrink> Shrinker<T> {
    /// Has `target` asked from now on. May sleep.
    pub(crate) fn register(name: &CStr, target: Arc<T>) -> Result<Self> {
        // SAFETY: The format takes one string; it is copied.
        let raw = unsafe { bindings::shrinker_alloc(0, c"%s".as_char_ptr(), name.as_char_ptr()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: It has just been allocated, and is not registered yet. The target stays until
        // the shrinker has been freed.
        unsafe {
            let shrinker = raw.as_ptr();
            (*shrinker).count_objects = Some(Self::count);
            (*shrinker).scan_objects = Some(Self::scan);
            (*shrinker).seeks = bindings::DEFAULT_SEEKS as c_int;
            (*shrinker).private_data = Arc::as_ptr(&target).cast_mut().cast();
            bindings::shrinker_register(shrinker);
        }
        // INVARIANT: Just registered.
        Ok(Self {
            raw,
            _target: target,
        })
    }

    /// # Safety
    ///
    /// `shrinker` is that of a `Shrinker<T>`, which stays while `'a` lasts.
    unsafe fn target<'a>(shrinker: *mut bindings::shrinker) -> ArcBorrow<'a, T> {
        // SAFETY: By the contract of this function and the type invariant.
        unsafe {
            let target: *const c_void = (*shrinker).private_data;
            ArcBorrow::from_raw(target.cast())
        }
    }

    /// # Safety
    ///
    /// As for [`Self::target`].
    unsafe extern "C" fn count(
        shrinker: *mut bindings::shrinker,
        _control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: By the contract of this function; C waits for this before it frees a shrinker.
        unsafe { Self::target(shrinker) }.count()
    }

    /// # Safety
    ///
    /// As for [`Self::target`], and `control` is valid.
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
        // SAFETY: By the type invariant. When this returns, nobody calls the target any more.
        unsafe { bindings::shrinker_free(self.raw.as_ptr()) };
    }
}
