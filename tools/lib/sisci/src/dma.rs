// SPDX-License-Identifier: LGPL-2.1

//! DMA queues: a queue has one transfer, or one vector of transfers, in flight at a time.
//!
//! Starting a transfer hands it to the driver; a small one is complete when that returns. The
//! completion of a larger one is found in three ways, see `outcomes.rs`. A caller that waits uses
//! the transfer's own mark. A caller that only polls reads a word that the driver sets. For a
//! callback, a thread waits. A transfer belongs to the connections on which it was started. If the
//! link goes meanwhile, the transfer has failed, whether the segment is connected again or not. A
//! transfer to a group goes to the members within reach.
//!
//! Locks: `calling`, then `inner`, then `held`, then those of segments. A transfer is handed to the
//! driver without them.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use crate::callback;
use crate::deadline::Deadline;
use crate::device;
use crate::device::DeviceUse;
use crate::endpoint::Copied;
use crate::endpoint::Direction;
use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
use crate::events::Events;
use crate::flags;
use crate::handles::Handle;
use crate::handles::Table;
use crate::local_segment::LocalSegment;
use crate::local_segment::LocalUse;
use crate::lock::lock;
use crate::remote_segment::RemoteSegment;
use crate::remote_segment::RemoteUse;
use crate::threads::Caller;
use crate::transfers::Share;

/// `DIS_DMA_MAX_VECLEN`
pub const MOST_ENTRIES: usize = 256;

/// Largest size of a transfer that the starting call waits for.
const AT_ONCE: usize = 64 << 10;

/// Interval at which a caller that waits for a limited time polls.
const LOOK: Duration = Duration::from_micros(50);

/// All DMA queues.
pub static QUEUES: Table<Queue> = Table::new(6);

/// `sci_dma_queue_state_t`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// No transfer was started yet.
    Idle = 0,
    /// A transfer is in flight.
    Posted = 2,
    /// The transfer has arrived.
    Done = 3,
    /// The transfer was aborted.
    Aborted = 4,
    /// The transfer failed.
    Error = 5,
}

/// `dis_dma_vec_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    pub size: usize,
    pub local_offset: usize,
    pub remote_offset: usize,
    pub flags: u32,
}

/// The local side of a transfer.
pub enum Local {
    /// A local segment.
    Segment(Arc<LocalSegment>),
    /// Memory of the program.
    Memory(*mut c_void),
}

/// The description of a transfer to start.
pub struct Wanted<'a> {
    /// The local side.
    pub local: Local,
    /// The remote side.
    pub remote: Arc<RemoteSegment>,
    /// The parts of both sides to copy.
    pub entries: &'a [Entry],
    /// The flags of `SCIStartDmaTransfer()`.
    pub flags: u32,
    /// The callback to call on completion.
    pub callback: Option<callback::Status>,
}

impl Wanted<'_> {
    /// Returns whether the driver is to wait for completion in the call that starts the transfer.
    /// For a small transfer without a callback that takes less time than a second call that asks
    /// for completion.
    fn is_done_at_once(&self) -> bool {
        match self.entries {
            [only] => {
                self.callback.is_none() && only.size <= AT_ONCE && !self.remote.is_broadcast()
            }
            _ => false,
        }
    }
}

/// Iterator over the copies of a vector, in order. Entries that are adjacent in both segments are
/// one copy, as each copy costs the driver and the engine a beginning and an end.
struct Stretches<'a>(&'a [Entry]);

impl Iterator for Stretches<'_> {
    type Item = Copied;

    fn next(&mut self) -> Option<Copied> {
        let (first, mut rest) = self.0.split_first()?;
        let (local, remote) = (first.local_offset as u64, first.remote_offset as u64);
        let mut length = first.size as u64;
        while let Some((next, behind)) = rest.split_first() {
            let follows = next.local_offset as u64 == local + length
                && next.remote_offset as u64 == remote + length;
            if !follows {
                break;
            }
            length += next.size as u64;
            rest = behind;
        }
        self.0 = rest;
        Some(Copied {
            local,
            remote,
            length,
        })
    }
}

/// A transfer, or a vector, that was started.
struct Job {
    /// The job's share of each connection that it goes by.
    shares: Vec<Share>,
    /// The segments, until the job is complete.
    held: Mutex<Option<(Option<LocalUse>, RemoteUse)>>,
    callback: Option<callback::Status>,
    aborted: AtomicBool,
    /// Whether the driver has all of the job.
    handed_over: AtomicBool,
}

struct Inner {
    state: State,
    /// The reason why the last transfer failed.
    error: Option<Error>,
    job: Option<Arc<Job>>,
    /// Whether the last transfer had a callback, so that `wait` is refused.
    has_callback: bool,
}

/// A DMA queue.
pub struct Queue {
    device: DeviceUse,
    handle: OnceLock<usize>,
    inner: Mutex<Inner>,
    calls: Arc<Events<Arc<Job>>>,
    caller: Caller,
    caller_runs: AtomicBool,
    /// Held from before a transfer is found complete until its callback has returned.
    calling: Arc<Mutex<()>>,
}

impl Job {
    /// Waits until the driver has all of the job. Before that its connections have no mark to wait
    /// for.
    fn wait_until_handed_over(&self) {
        while !self.handed_over.load(Acquire) {
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the job is complete on each of its connections. Returns the first error.
    fn wait(&self) -> Result<()> {
        let ended = self.shares.iter().map(Share::wait);
        ended.fold(Ok(()), Result::and)
    }

    /// Returns whether the job is complete or has failed. Does not wait.
    fn has_ended(&self) -> bool {
        self.handed_over.load(Acquire) && self.shares.iter().all(Share::has_ended)
    }

    /// Releases the segments.
    fn let_go(&self) {
        let held = lock(&self.held).take();
        drop(held);
    }
}

/// Completes all transfers that have ended and that no caller has asked about, so that their
/// segments are released.
pub fn settle() {
    QUEUES.all().iter().for_each(|queue| queue.look());
}

impl Queue {
    /// Implements `SCICreateDMAQueue()`.
    pub fn create(device: Handle, most: usize) -> Result<Handle> {
        if most == 0 {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        let queue = Arc::new(Self {
            device: device::using(device)?,
            handle: OnceLock::new(),
            inner: Mutex::new(Inner {
                state: State::Idle,
                error: None,
                job: None,
                has_callback: false,
            }),
            calls: Arc::new(Events::new()),
            caller: Caller::default(),
            caller_runs: AtomicBool::new(false),
            calling: Arc::new(Mutex::new(())),
        });
        QUEUES.insert_with(|handle| {
            let _ = queue.handle.set(handle as usize);
            queue
        })
    }

    /// Implements `SCIRemoveDMAQueue()`.
    pub fn remove(handle: Handle) -> Result<()> {
        let queue = QUEUES.get(handle)?;
        if queue.state() == State::Posted {
            return Err(Error::ILLEGAL_OPERATION);
        }
        QUEUES.remove(handle)?;
        queue.release();
        Ok(())
    }

    /// Aborts the transfer and releases all resources.
    pub fn release(&self) {
        let _ = self.abort();
        self.calls.close();
        self.caller.join();
        self.device.release();
    }

    /// Implements `SCIStartDmaTransfer()`.
    pub fn start(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<()> {
        self.check(&wanted)?;
        if wanted.callback.is_some() {
            self.start_caller()?;
        }
        let imports = wanted.remote.imports()?;
        let ways = imports.iter().flat_map(|import| import.transfers());
        let shares: Vec<_> = ways.map(|transfers| transfers.begin()).collect();
        if shares.is_empty() {
            return Err(Error::NOT_CONNECTED);
        }
        let local = match &wanted.local {
            Local::Segment(segment) => Some(segment.hold()?),
            Local::Memory(_) => None,
        };
        let job = Arc::new(Job {
            shares,
            held: Mutex::new(Some((local, wanted.remote.hold()?))),
            callback: wanted.callback,
            aborted: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
        });
        let at_once = wanted.is_done_at_once();
        self.post(&job)?;
        let handed = self.hand_over(&job, &wanted, at_once);
        if !at_once || handed.is_err() {
            job.shares.iter().for_each(Share::hand_over);
        }
        job.handed_over.store(true, Release);
        if let Err(error) = handed {
            // Copies that were handed over before must complete first: the caller may use the
            // memory again after this.
            let _ = job.wait();
            self.complete(&job, Err(error));
            return Err(error);
        }
        let mut ended = Ok(());
        if at_once {
            // The driver has waited for completion.
            self.complete(&job, ended);
        } else if wanted.flags & flags::DMA_WAIT != 0 {
            ended = job.wait();
            // With a callback, the callback's thread completes the job.
            if job.callback.is_none() {
                self.complete(&job, ended);
            }
        }
        if job.callback.is_some() {
            self.calls.push(job);
        }
        ended
    }

    fn check(&self, wanted: &Wanted<'_>) -> Result<()> {
        if wanted.entries.is_empty() {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        if wanted.entries.len() > MOST_ENTRIES {
            return Err(Error::MAX_ENTRIES);
        }
        if let Local::Segment(segment) = &wanted.local {
            segment.memory.check_pinned()?;
        }
        if wanted.flags & flags::DMA_READ != 0 && wanted.remote.is_broadcast() {
            return Err(Error::ILLEGAL_OPERATION);
        }
        let inside = |offset: usize, size: usize, all: u64| {
            let end = offset.checked_add(size);
            end.is_some_and(|end| end as u64 <= all)
        };
        let remote = wanted.remote.size();
        wanted.remote.imports()?;
        for entry in wanted.entries {
            let local = match &wanted.local {
                Local::Segment(segment) => segment.memory.size() as u64,
                Local::Memory(_) => u64::MAX,
            };
            if entry.size == 0 {
                return Err(Error::ILLEGAL_PARAMETER);
            }
            if !inside(entry.local_offset, entry.size, local)
                || !inside(entry.remote_offset, entry.size, remote)
            {
                return Err(Error::OUT_OF_RANGE);
            }
        }
        Ok(())
    }

    fn post(&self, job: &Arc<Job>) -> Result<()> {
        self.look();
        let mut inner = lock(&self.inner);
        if inner.state == State::Posted {
            return Err(Error::ILLEGAL_OPERATION);
        }
        inner.state = State::Posted;
        inner.error = None;
        inner.has_callback = job.callback.is_some();
        inner.job = Some(job.clone());
        Ok(())
    }

    fn hand_over(&self, job: &Job, wanted: &Wanted<'_>, at_once: bool) -> Result<()> {
        let direction = match wanted.flags & flags::DMA_READ {
            0 => Direction::Write,
            _ => Direction::Read,
        };
        let mut handed = Ok(());
        for range in Stretches(wanted.entries) {
            for share in &job.shares {
                if job.aborted.load(Relaxed) {
                    return handed;
                }
                let way = share.transfers();
                let started = match &wanted.local {
                    Local::Segment(segment) => {
                        let window = segment.memory.window(&way.channel);
                        window.and_then(|begin| way.copy(direction, range.moved(begin), at_once))
                    }
                    // SAFETY: The program leaves its memory alone until the queue is complete.
                    Local::Memory(memory) => unsafe {
                        way.copy_memory(direction, *memory, range, at_once)
                    },
                };
                // The other members of a group get the data, although one member does not.
                handed = handed.and(started);
            }
            if handed.is_err() && !wanted.remote.is_broadcast() {
                return handed;
            }
        }
        handed
    }

    fn start_caller(self: &Arc<Self>) -> Result<()> {
        if self.caller_runs.swap(true, Relaxed) {
            return Ok(());
        }
        let (queue, calls) = (Arc::downgrade(self), self.calls.clone());
        let calling = self.calling.clone();
        let handle = self.handle.get().copied().unwrap_or(0);
        let process = std::process::id();
        let started = self.caller.start(move || {
            while let Ok(job) = calls.next(Deadline::NEVER) {
                let ended = job.wait();
                let _calling = lock(&calling);
                let Some(queue) = queue.upgrade() else { return };
                let told = queue.complete(&job, ended);
                let (Some(status), Some(callback)) = (told, job.callback) else {
                    continue;
                };
                drop(queue);
                callback.call(handle as Handle, status);
                // A child that was forked in the callback has no transfers, and no thread that
                // would wake up this one.
                if std::process::id() != process {
                    return;
                }
            }
        });
        started.inspect_err(|_| self.caller_runs.store(false, Relaxed))
    }

    /// Marks the transfer complete. Returns its status, or none if another caller has done so
    /// before.
    fn complete(&self, job: &Arc<Job>, ended: Result<()>) -> Option<u32> {
        let mut inner = lock(&self.inner);
        let current = inner
            .job
            .as_ref()
            .is_some_and(|other| Arc::ptr_eq(other, job));
        if !current {
            return None;
        }
        inner.job = None;
        // Before other threads can see that the transfer is complete.
        job.let_go();
        (inner.state, inner.error) = match ended {
            Ok(()) => (State::Done, None),
            Err(error) => (State::Error, Some(error)),
        };
        drop(inner);
        Some(ended.err().map_or(OK, Error::code))
    }

    /// Completes the current transfer if it has ended and has no callback.
    fn look(&self) {
        let job = lock(&self.inner).job.clone();
        let Some(job) = job.filter(|job| job.callback.is_none()) else {
            return;
        };
        if job.has_ended() {
            self.complete(&job, job.wait());
        }
    }

    /// Implements `SCIDMAQueueState()`.
    pub fn state(&self) -> State {
        self.look();
        lock(&self.inner).state
    }

    /// Implements `SCIWaitForDMAQueue()`.
    pub fn wait(&self, timeout: Deadline) -> Result<State> {
        let (state, job) = {
            let inner = lock(&self.inner);
            if inner.state == State::Idle || inner.has_callback {
                return Err(Error::ILLEGAL_OPERATION);
            }
            (inner.state, inner.job.clone())
        };
        let Some(job) = job else { return Ok(state) };
        if timeout.instant().is_some() {
            while !job.has_ended() {
                if timeout.is_over() {
                    return Err(Error::TIMEOUT);
                }
                std::thread::sleep(LOOK);
            }
        }
        job.wait_until_handed_over();
        self.complete(&job, job.wait());
        Ok(lock(&self.inner).state)
    }

    /// Implements `SCIAbortDMAQueue()`.
    pub fn abort(&self) -> Result<()> {
        // Waits for a callback in progress, unless this call is made by that callback.
        let own = self.caller.id() == Some(std::thread::current().id());
        let _calling = (!own).then(|| lock(&self.calling));
        self.look();
        let job = lock(&self.inner).job.clone();
        let Some(job) = job else { return Ok(()) };
        job.aborted.store(true, Relaxed);
        {
            let mut inner = lock(&self.inner);
            if !inner
                .job
                .as_ref()
                .is_some_and(|other| Arc::ptr_eq(other, &job))
            {
                return Ok(());
            }
            inner.state = State::Aborted;
            // From here on no callback is made for the job.
            inner.job = None;
        }
        // A copy that an engine performs can't be taken back, and the caller may use the memory
        // after this.
        job.wait_until_handed_over();
        let _ = job.wait();
        job.let_go();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: usize, local_offset: usize, remote_offset: usize) -> Entry {
        Entry {
            size,
            local_offset,
            remote_offset,
            flags: 0,
        }
    }

    fn stretches(entries: &[Entry]) -> Vec<(u64, u64, u64)> {
        let stretches = Stretches(entries);
        stretches
            .map(|copied| (copied.length, copied.local, copied.remote))
            .collect()
    }

    #[test]
    fn entries_adjacent_on_both_sides_are_one_copy() {
        let whole: Vec<_> = (0..256).map(|i| entry(8, 8 * i, 8 * i + 64)).collect();
        assert_eq!(stretches(&whole), [(2048, 0, 64)]);
        assert_eq!(stretches(&[]), []);
    }

    #[test]
    fn entries_adjacent_on_one_side_only_are_separate_copies() {
        let entries = [
            entry(8, 0, 0),
            entry(8, 8, 16),
            entry(8, 24, 24),
            entry(4, 32, 32),
            entry(8, 24, 24),
        ];
        let wanted = [(8, 0, 0), (8, 8, 16), (12, 24, 24), (8, 24, 24)];
        assert_eq!(stretches(&entries), wanted);
    }
}
