// SPDX-License-Identifier: GPL-2.0

//! Character devices that create an object for each open file, and the operations of these files.
//!
//! They are no misc devices, because the kernel opens the files of all misc devices under one mutex
//! (`misc_mtx`). The object behind a file is charged to the process that opens it. If the cgroup of
//! that process had no memory left, no process could open any misc device while it tries to get
//! some.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h) (`register_chrdev()`) and
//! [`include/linux/device/class.h`](srctree/include/linux/device/class.h)

use core::{
    marker::PhantomData,
    ptr, //
};

use kernel::{
    bindings,
    error::{
        from_err_ptr,
        from_result,
        to_result, //
    },
    fmt,
    fs::{
        file::flags,
        File, //
    },
    mm::virt::VmaNew,
    module::this_module,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        Arc,
        ArcBorrow, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    },
};

use super::{
    bindings as own,
    calls::Shown,
    wait::WaitQueue, //
};
use crate::LocalModule;

/// An object behind a file of [`Devices`].
pub(crate) trait DeviceFile: FileOperations {
    /// Creates the object of a file that is being opened.
    fn open() -> Result<Arc<Self>>;
}

/// An object behind one open file. The default of an operation is what the kernel returns for a
/// file without it.
pub(crate) trait FileOperations: Send + Sync + Sized + 'static {
    /// Handles the close of the last descriptor of the file. No other operation runs any more.
    ///
    /// The operations below may keep references to the object beyond this call.
    fn release(this: Arc<Self>) {
        drop(this);
    }

    /// Copies available data into the reader's memory, and returns the number of bytes. Not for
    /// files of devices.
    /// Context: may sleep.
    fn read(&self, _to: &mut UserSliceWriter) -> Result<usize> {
        Err(EINVAL)
    }

    /// Handles the close of a descriptor of the file; others may remain.
    ///
    /// `table` names the descriptor table of the closed descriptor, as
    /// [`descriptor_table`](super::current::descriptor_table) does.
    fn flush(_this: ArcBorrow<'_, Self>, _file: &File, _table: usize) -> Result {
        Ok(())
    }

    /// Handles an ioctl. `arg` is untrusted.
    fn ioctl(_: ArcBorrow<'_, Self>, _file: &File, _cmd: u32, _arg: usize) -> Result<isize> {
        Err(ENOTTY)
    }

    /// Handles an ioctl of a 32-bit process. An `arg` that is an address has to go through
    /// [`compat_pointer`].
    fn compat_ioctl(_: ArcBorrow<'_, Self>, _file: &File, _cmd: u32, _arg: usize) -> Result<isize> {
        Err(ENOTTY)
    }

    /// Names the queues that are woken when the result changes, and returns the events that are
    /// ready now. The events are [`poll_events`], such as `POLLIN`.
    ///
    /// `self` and the queues are borrowed until the file is released, as [`PollContext`] requires.
    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32;

    /// Shows the lines of `/proc/PID/fdinfo/FD` for this file.
    /// Context: may sleep.
    fn show(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Sets up a mapping of the file.
    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew) -> Result;
}

/// Bits that [`FileOperations::poll`] returns.
pub(crate) mod poll_events {
    pub(crate) use kernel::bindings::{
        POLLERR as ERR,
        POLLHUP as HUP,
        POLLIN as IN,
        POLLOUT as OUT,
        POLLPRI as PRI,
        POLLRDNORM as RDNORM,
        POLLWRNORM as WRNORM, //
    };
}

/// Returns whether the file is in non-blocking mode.
pub(crate) fn nonblocking(file: &File) -> bool {
    file.flags() & flags::O_NONBLOCK != 0
}

/// Returns whether the descriptor that is being closed is the last one of the file in `table`.
/// Context: only in [`FileOperations::flush`], with its `table`.
pub(crate) fn is_last_descriptor(file: &File, table: usize) -> bool {
    // SAFETY: The file is valid. The helper reads the table only if it is the caller's own.
    unsafe { own::scif_helper_is_last_descriptor(file.as_ptr(), table as c_ulong) }
}

/// Returns the address that a 32-bit process means by `pointer`.
pub(crate) fn compat_pointer(pointer: usize) -> usize {
    // SAFETY: The helper only computes.
    unsafe { own::scif_helper_compat_ptr(pointer) }
}

/// A call of `poll` on a file.
///
/// `poll`, `select` and `epoll` keep an entry in the named queues until the file is released. So
/// each queue must live as long: it is borrowed for `'file`, which no local reference and no lock
/// guard satisfies. A queue that is created later belongs in a [`SetOnce`](kernel::sync::SetOnce)
/// of the object.
///
/// # Invariants
///
/// `file` is valid, and `table` is null or valid, as long as this exists.
pub(crate) struct PollContext<'file> {
    file: *mut bindings::file,
    table: *mut bindings::poll_table,
    /// Makes `'file` invariant, so that no other lifetime can stand in for the file's.
    _lifetime: PhantomData<fn(&'file ()) -> &'file ()>,
}

impl<'file> PollContext<'file> {
    /// Makes a wake-up of `queue` wake the poller. Check the condition after this call.
    pub(crate) fn wait_on(&self, queue: &'file WaitQueue) {
        // SAFETY: The pointers are valid by the type invariant. `queue` lives until the file is
        // released, and all entries are removed before that.
        unsafe { bindings::poll_wait(self.file, queue.as_ptr(), self.table) };
    }
}

/// Registered devices below `/dev`, which are removed on drop.
///
/// Open files stay usable: they hold a reference to the module.
///
/// # Invariants
///
/// `class` is registered. Unless `major` is 0, the first `count` numbers of `major` are registered,
/// too.
pub(crate) struct Devices<T: DeviceFile> {
    /// Name of the devices in sysfs and `/proc/devices`.
    name: &'static CStr,
    class: *mut bindings::class,
    major: c_uint,
    count: c_uint,
    _files: PhantomData<Arc<T>>,
}

// SAFETY: Any thread may unregister devices, whichever thread registered them.
unsafe impl<T: DeviceFile> Send for Devices<T> {}
// SAFETY: No method changes anything through `&self`.
unsafe impl<T: DeviceFile> Sync for Devices<T> {}

impl<T: DeviceFile> Devices<T> {
    /// Creates a device for each of `paths` below `/dev`, where `!` stands for a slash. The devices
    /// have mode 0600 unless udev decides otherwise. Files may be opened before this returns.
    pub(crate) fn register(name: &'static CStr, paths: &[&'static CStr]) -> Result<Self> {
        // INVARIANT: When this succeeds, the class is registered, and no number is.
        let mut this = Self {
            name,
            // SAFETY: The name is static.
            class: from_err_ptr(unsafe { bindings::class_create(name.as_char_ptr()) })?,
            major: 0,
            count: paths.len() as c_uint,
            _files: PhantomData,
        };
        // SAFETY: The name and the operations are static.
        let major = unsafe {
            let (name, operations) = (name.as_char_ptr(), &Self::OPERATIONS);
            bindings::__register_chrdev(0, 0, this.count, name, operations)
        };
        to_result(major)?;
        // INVARIANT: The numbers have just been registered.
        this.major = major as c_uint;
        for (number, path) in this.numbers().zip(paths) {
            let (parent, data) = (ptr::null_mut(), ptr::null_mut());
            let (format, path) = (c"%s".as_char_ptr(), path.as_char_ptr());
            // SAFETY: The class is registered, and the format takes the path.
            from_err_ptr(unsafe {
                bindings::device_create(this.class, parent, number, data, format, path)
            })?;
        }
        Ok(this)
    }

    fn numbers(&self) -> impl Iterator<Item = bindings::dev_t> {
        let first = self.major << bindings::MINORBITS;
        first..first + self.count
    }

    const OPERATIONS: bindings::file_operations = bindings::file_operations {
        open: Some(Self::open),
        read: None,
        ..Files::<T>::OPERATIONS
    };

    /// # Safety
    ///
    /// `file` is a file of these devices that is being opened, and `inode` is its inode.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        from_result(|| {
            // SAFETY: By the contract of this function.
            to_result(unsafe { bindings::generic_file_open(inode, file) })?;
            let data = T::open()?;
            // SAFETY: This driver owns the private data of the file.
            unsafe { (*file).private_data = Arc::into_raw(data).cast_mut().cast() };
            Ok(0)
        })
    }
}

impl<T: DeviceFile> Drop for Devices<T> {
    fn drop(&mut self) {
        if self.major != 0 {
            for number in self.numbers() {
                // SAFETY: The class is registered. A device that could not be created is not found
                // there.
                unsafe { bindings::device_destroy(self.class, number) };
            }
            // SAFETY: By the type invariant the numbers are registered.
            unsafe {
                bindings::__unregister_chrdev(self.major, 0, self.count, self.name.as_char_ptr())
            };
        }
        // SAFETY: By the type invariant the class is registered, and its devices are gone.
        unsafe { bindings::class_destroy(self.class) };
    }
}

/// A holder of the operations of files that have an `Arc<T>` as their private data.
pub(super) struct Files<T>(PhantomData<Arc<T>>);

impl<T: FileOperations> Files<T> {
    pub(super) const OPERATIONS: bindings::file_operations = bindings::file_operations {
        owner: this_module::<LocalModule>().as_ptr(),
        release: Some(Self::release),
        read: Some(Self::read),
        flush: Some(Self::flush),
        unlocked_ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: Some(Self::compat_ioctl),
        poll: Some(Self::poll),
        mmap: Some(Self::mmap),
        show_fdinfo: Some(Self::show_fdinfo),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// `file` is an open file of this kind, and stays so for `'a`.
    unsafe fn data<'a>(file: *mut bindings::file) -> ArcBorrow<'a, T> {
        // SAFETY: The creator of the file has put it there, and the file owns it until `release`.
        unsafe { ArcBorrow::from_raw((*file).private_data.cast()) }
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind that is being released.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: The creator of the file has put it there, and nothing else uses it any more.
        T::release(unsafe { Arc::from_raw((*file).private_data.cast::<T>()) });
        0
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        to: *mut c_char,
        len: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: By the contract of this function.
        let data = unsafe { Self::data(file) };
        let to = UserSlice::new(UserPtr::from_addr(to as usize), len);
        from_result(|| Ok(data.read(&mut to.writer())? as isize))
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind.
    unsafe extern "C" fn flush(file: *mut bindings::file, id: bindings::fl_owner_t) -> c_int {
        from_result(|| {
            // SAFETY: By the contract of this function. No thread reads or writes the file at a
            // position.
            unsafe { T::flush(Self::data(file), File::from_raw_file(file), id as usize) }?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: As in `flush`.
        unsafe { T::ioctl(Self::data(file), File::from_raw_file(file), cmd, arg) }
            .unwrap_or_else(|error| error.to_errno() as c_long)
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind.
    #[cfg(CONFIG_COMPAT)]
    unsafe extern "C" fn compat_ioctl(
        file: *mut bindings::file,
        cmd: c_uint,
        arg: c_ulong,
    ) -> c_long {
        // SAFETY: As in `flush`.
        unsafe { T::compat_ioctl(Self::data(file), File::from_raw_file(file), cmd, arg) }
            .unwrap_or_else(|error| error.to_errno() as c_long)
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind; `table` is null or valid.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // INVARIANT: Both are valid during this call.
        let context = PollContext {
            file,
            table,
            _lifetime: PhantomData,
        };
        // SAFETY: The creator of the file has put it there, and the file owns it until `release`.
        // That is the lifetime that `poll` and its context are given.
        let data = unsafe { &*(*file).private_data.cast::<T>() };
        data.poll(&context)
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind, and no other code uses `seq`.
    unsafe extern "C" fn show_fdinfo(seq: *mut bindings::seq_file, file: *mut bindings::file) {
        // SAFETY: By the contract of this function.
        let (seq, data) = unsafe { (SeqFile::from_raw(seq), Self::data(file)) };
        seq_print!(seq, "{}", Shown(|f: &mut fmt::Formatter<'_>| data.show(f)));
    }

    /// # Safety
    ///
    /// `file` is an open file of this kind, and `vma` an area that is being set up for it.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the contract of this function.
            unsafe { T::mmap(Self::data(file), VmaNew::from_raw(vma)) }?;
            Ok(0)
        })
    }
}
