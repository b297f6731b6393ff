// SPDX-License-Identifier: GPL-2.0

//! Signals and processes by calls of the C library, as `std` has no functions for them.

use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

/// The signal that interrupts a call that waits.
const INTERRUPT: i32 = libc::SIGUSR1;

extern "C" fn nothing(_: libc::c_int) {}

/// Makes the signals interrupt calls, which are not restarted, and do nothing else.
pub fn install() {
    for signal in [INTERRUPT, libc::SIGALRM] {
        // SAFETY: An action of all zeroes is valid and has no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        // SAFETY: The handler does nothing.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// A guard that keeps the interrupting signals from a thread.
pub struct Blocked(libc::sigset_t);

/// Keeps the interrupting signals from this thread.
pub fn block() -> Blocked {
    // SAFETY: Any bytes are a valid set, and the calls fill in both sets before they are used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, INTERRUPT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        Blocked(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: The set is the one that the thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Returns the id of this thread.
pub fn own_id() -> i32 {
    // SAFETY: The call only returns a number.
    unsafe { libc::gettid() }
}

/// Interrupts the thread of this process that has the id, if it exists.
pub fn interrupt(thread: i32) {
    if thread > 0 {
        // SAFETY: The handler does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, INTERRUPT) };
    }
}

/// Lets a signal interrupt this process again and again.
pub fn tick(every: Duration) {
    let every = libc::timeval {
        tv_sec: every.as_secs() as i64,
        tv_usec: every.subsec_micros().into(),
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: The handler does nothing.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
}

/// Forks this process. Returns 0 in the child, which is killed when the thread that made it ends.
pub fn fork() -> Result<i32> {
    // SAFETY: The child uses only what it has inherited. It does not print, and waits for no thread
    // of the parent.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    if pid == 0 {
        die_with_parent();
    }
    Ok(pid)
}

/// Lets the kernel kill this process when the thread that made it ends.
fn die_with_parent() {
    // SAFETY: The call takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Makes this process the parent of all descendants whose parents have ended.
pub fn adopt() {
    // SAFETY: The call takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Replaces this process by this program with other arguments.
pub fn exec(arguments: &[CString]) -> ! {
    let mut pointers: Vec<*const libc::c_char> =
        arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: The list has pointers to strings, and ends with a null pointer.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), pointers.as_ptr()) };
    end()
}

/// Ends this process without running anything more in it.
pub fn end() -> ! {
    // SAFETY: The call does not return.
    unsafe { libc::_exit(0) }
}

/// Kills this process.
pub fn die() -> ! {
    // SAFETY: The call takes numbers only.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    end()
}

/// Kills a process that is a child of this one.
pub fn kill(child: i32) {
    // SAFETY: The child was not waited for, so the id is still its own.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

/// Returns whether a child has ended, and releases its id in that case.
pub fn has_ended(child: i32) -> bool {
    // SAFETY: The call takes numbers, and a null pointer in the place of the status.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

/// Reaps a child that has ended, and returns its id. Returns 0 if none has ended, and `None` if
/// there are no children.
pub fn next_ended() -> Option<i32> {
    // SAFETY: The call takes numbers, and a null pointer in the place of the status.
    let child = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    (child >= 0).then_some(child)
}

/// Makes a pair of connected sockets for messages.
pub fn socket_pair() -> Result<[OwnedFd; 2]> {
    let (one, other) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    debug_assert!(one.as_raw_fd() != other.as_raw_fd());
    Ok([one, other])
}

/// Returns the kernel stacks of a process's threads, for a person to read.
pub fn stacks(process: i32) -> String {
    let mut text = String::new();
    let tasks = Path::new("/proc").join(process.to_string()).join("task");
    for task in std::fs::read_dir(&tasks).into_iter().flatten().flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (name, stack) = (read("comm"), read("stack"));
        text += &format!("{} {name}{stack}", task.file_name().to_string_lossy());
    }
    text
}
