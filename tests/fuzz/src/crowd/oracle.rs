// SPDX-License-Identifier: GPL-2.0

//! The oracle: the allowed results of calls on endpoints that many threads share.
//!
//! The possible states of an endpoint follow from two sources. One is the facts that earlier
//! results have proved. The other is the calls begun before the present call ended that may have
//! changed the state. An endpoint that has listened listens until it is closed. An endpoint that
//! was connected stays so until its peer is gone, which is permanent, too. So the more facts are
//! known, the fewer states are possible. A result is allowed if one of the possible states allows
//! it.

use libc::EACCES;
use libc::EADDRINUSE;
use libc::EAGAIN;
use libc::ECONNREFUSED;
use libc::ECONNRESET;
use libc::EINPROGRESS;
use libc::EINTR;
use libc::EINVAL;
use libc::EIO;
use libc::EISCONN;
use libc::EMSGSIZE;
use libc::ENODEV;
use libc::ENOENT;
use libc::ENOTCONN;
use libc::ENXIO;
use libc::EOPNOTSUPP;

use crate::crowd::setting::Setting;
use crate::crowd::steps::Step;
use crate::kernel::Errno;
use crate::memory::PAGE;

/// Fact: the endpoint is bound, or was.
pub const IS_BOUND: u32 = 1;
/// Fact: the endpoint listens.
pub const LISTENS: u32 = 2;
/// Fact: the endpoint is connected, or was.
pub const IS_CONNECTED: u32 = 4;
/// Fact: the peer of the endpoint is gone.
pub const IS_RESET: u32 = 8;
/// Fact: connects of the endpoint do not wait. The fact is set when the endpoint is made.
pub const IS_NONBLOCKING: u32 = 16;

/// A kind of call that changes the state of an endpoint.
#[derive(Clone, Copy)]
pub enum Kind {
    Bind = 0,
    Listen = 1,
    Connect = 2,
}

impl Kind {
    /// Returns the kind of a step, if the step changes the state of an endpoint.
    pub fn of(step: &Step) -> Option<Self> {
        match step {
            Step::Bind { .. } => Some(Self::Bind),
            Step::Listen { .. } => Some(Self::Listen),
            Step::Connect { .. } | Step::ConnectName { .. } => Some(Self::Connect),
            _ => None,
        }
    }

    /// Returns the value that one call of this kind adds to a count of calls.
    pub fn one(self) -> u64 {
        1 << (16 * self as u32)
    }
}

/// A count of calls for each kind, 16 bits each.
#[derive(Clone, Copy)]
pub struct Begun(u64);

impl Begun {
    pub fn of(counts: u64) -> Self {
        Self(counts)
    }

    /// Returns whether there is a call of this kind.
    fn has(self, kind: Kind) -> bool {
        (self.0 >> (16 * kind as u32)) & 0xffff != 0
    }

    /// Returns a count of one for each kind that has calls.
    pub fn each_once(self) -> u64 {
        let kinds = [Kind::Bind, Kind::Listen, Kind::Connect];
        let there = kinds.into_iter().filter(|kind| self.has(*kind));
        there.map(Kind::one).sum()
    }
}

/// A set of states in which an endpoint may have been during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(u32);

const UNBOUND: u32 = 1;
const BOUND: u32 = 2;
const LISTENING: u32 = 4;
/// A request of the endpoint is in flight, or was answered and no thread has collected the result.
const ASKING: u32 = 8;
const CONNECTED: u32 = 16;
const RESET: u32 = 32;

impl States {
    /// The set of all states, if nothing is known.
    pub const ALL: Self = Self(63);

    /// Returns the possible states, by facts proved before a call and calls begun before its end.
    pub fn of(facts: u32, begun: Begun) -> Self {
        if facts & IS_RESET != 0 {
            return Self(RESET);
        }
        if facts & IS_CONNECTED != 0 {
            return Self(CONNECTED | RESET);
        }
        if facts & LISTENS != 0 {
            return Self(LISTENING);
        }
        let mut states = 0;
        if facts & IS_BOUND == 0 {
            states |= UNBOUND;
        }
        // The endpoint stays bound if its request is refused.
        if facts & IS_BOUND != 0 || begun.has(Kind::Bind) || begun.has(Kind::Connect) {
            states |= BOUND;
        }
        if begun.has(Kind::Listen) {
            states |= LISTENING;
        }
        if begun.has(Kind::Connect) {
            states |= ASKING | CONNECTED | RESET;
        }
        Self(states)
    }

    fn each(self) -> impl Iterator<Item = u32> {
        (0..6)
            .map(|bit| 1 << bit)
            .filter(move |state| self.0 & state != 0)
    }
}

/// The allowed results of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    pub success: bool,
    errors: u128,
}

impl Allowed {
    fn errors(numbers: &[i32]) -> Self {
        let bits = numbers.iter().map(|number| 1u128 << number);
        Self {
            success: false,
            errors: bits.fold(0, |all, bit| all | bit),
        }
    }

    /// Allows success and these errors.
    fn or(numbers: &[i32]) -> Self {
        Self {
            success: true,
            ..Self::errors(numbers)
        }
    }

    fn join(self, other: Self) -> Self {
        Self {
            success: self.success || other.success,
            errors: self.errors | other.errors,
        }
    }

    /// Returns whether this error is allowed.
    pub fn has(&self, error: Errno) -> bool {
        (0..128).contains(&error.0) && (self.errors >> error.0) & 1 != 0
    }

    /// Returns the errors as a list, for a person to read.
    pub fn list(&self) -> Vec<Errno> {
        let errors = (0..128).map(Errno).filter(|error| self.has(*error));
        errors.collect()
    }
}

/// Returns the allowed results of a step's call on an endpoint in one of these states.
pub fn allowed(step: &Step, states: States, setting: &Setting) -> Allowed {
    let is_staged = setting.is_staged;
    let each = states.each().map(|state| in_state(step, state, is_staged));
    let mut all = each.reduce(Allowed::join).unwrap_or_default();
    if matches!(step, Step::Accept { .. }) && states == States::ALL {
        // Another thread may have closed the last descriptor of the listener meanwhile.
        all = all.join(Allowed::errors(&[EINTR]));
    }
    if matches!(step, Step::Mark { .. }) && states == States::ALL {
        // Another endpoint may have replaced the slot's between the two calls, and does not know
        // the mark.
        all = all.join(Allowed::errors(&[EINVAL]));
    }
    let has_peer = states.0 & (ASKING | CONNECTED | RESET) != 0
        || matches!(step, Step::Connect { .. } | Step::ConnectName { .. });
    match setting.is_lossy && has_peer {
        true => all.join(lost(step)),
        false => all,
    }
}

/// Returns the additional results of a call where the peer's node is lost now and then.
fn lost(step: &Step) -> Allowed {
    match step {
        Step::Send { .. } | Step::Receive { .. } | Step::SendAll { .. } => {
            Allowed::errors(&[ECONNRESET])
        }
        Step::Bind { .. } | Step::Listen { .. } | Step::Accept { .. } | Step::BindName { .. } => {
            Allowed::default()
        }
        _ => Allowed::errors(&[ENODEV, EIO]),
    }
}

fn in_state(step: &Step, state: u32, is_staged: bool) -> Allowed {
    match *step {
        Step::Bind { port, .. } => match state {
            UNBOUND if port == 0 => Allowed::or(&[]),
            UNBOUND => Allowed::or(&[EINVAL]),
            BOUND => Allowed::errors(&[EINVAL]),
            ASKING => Allowed::errors(&[EINVAL, EISCONN, EINPROGRESS]),
            _ => Allowed::errors(&[EISCONN]),
        },
        Step::Listen { backlog, .. } => {
            let of_state = match state {
                UNBOUND => Allowed::errors(&[EINVAL]),
                BOUND if backlog > 0 => Allowed::or(&[]),
                BOUND => Allowed::errors(&[EINVAL]),
                ASKING => Allowed::errors(&[EINVAL, EISCONN, EINPROGRESS]),
                _ => Allowed::errors(&[EISCONN]),
            };
            match backlog > 0 {
                true => of_state,
                false => of_state.join(Allowed::errors(&[EINVAL])),
            }
        }
        Step::Connect { .. } => connecting(state, &[]),
        Step::ConnectName { .. } => connecting(state, &[ENOENT]),
        Step::Accept { flags, .. } => match state {
            LISTENING if flags == 1 => Allowed::or(&[EINTR]),
            LISTENING if flags == 0 => Allowed::or(&[EAGAIN]),
            _ => Allowed::errors(&[EINVAL]),
        },
        Step::BindName { .. } => match state {
            UNBOUND => Allowed::errors(&[EINVAL]),
            BOUND | LISTENING => Allowed::or(&[EADDRINUSE, EINVAL]),
            ASKING => Allowed::errors(&[EINVAL, EISCONN, EINPROGRESS]),
            _ => Allowed::errors(&[EISCONN]),
        },
        Step::Send { len, flags, .. } | Step::Receive { len, flags, .. } => {
            if len < 0 || flags & !1 != 0 {
                return Allowed::errors(&[EINVAL]);
            }
            if len == 0 {
                return Allowed::or(&[]);
            }
            let waits = match flags {
                0 => Allowed::default(),
                _ => Allowed::errors(&[EINTR]),
            };
            match (step, state) {
                // Messages that arrived before the peer closed can still be received.
                (Step::Receive { .. }, RESET) => Allowed::or(&[ECONNRESET]).join(waits),
                _ => connected(state, Allowed::or(&[]).join(waits)),
            }
        }
        Step::SendAll { len, flags, .. } => {
            if flags & !1 != 0 {
                return Allowed::errors(&[EINVAL]);
            }
            if len == 0 {
                return Allowed::or(&[]);
            }
            let mut here = match flags {
                0 => Allowed::or(&[EAGAIN]),
                _ => Allowed::or(&[EINTR]),
            };
            // The ring is small if the aperture is small.
            if is_staged && len > 64 {
                here = here.join(Allowed::errors(&[EMSGSIZE]));
            }
            connected(state, here)
        }
        _ => of_connected(step, state, is_staged),
    }
}

/// Returns the allowed results of a call that requires a connection, but neither makes a connection
/// nor sends messages.
fn of_connected(step: &Step, state: u32, is_staged: bool) -> Allowed {
    match *step {
        Step::Register {
            pages, protection, ..
        }
        | Step::Memory {
            pages, protection, ..
        } => {
            if pages == 0 || protection & !3 != 0 || protection == 0 {
                return Allowed::errors(&[EINVAL]);
            }
            // Another thread may use this part of the address space, and registers on the same
            // endpoint take turns.
            connected(state, Allowed::or(&[EADDRINUSE, EINTR]))
        }
        Step::Unregister { pages, .. } => match pages {
            0 => Allowed::errors(&[EINVAL]),
            _ => connected(state, Allowed::or(&[ENXIO, EINVAL])),
        },
        Step::Copy { len, flags, .. } | Step::CopyMemory { len, flags, .. } => {
            if len == 0 || flags & !0xf != 0 {
                return Allowed::errors(&[EINVAL]);
            }
            connected(state, Allowed::or(&[ENXIO, EACCES]))
        }
        Step::Map { .. } => {
            let staged: &[i32] = if is_staged { &[EOPNOTSUPP] } else { &[] };
            let here = Allowed::or(&[ENXIO, EACCES]).join(Allowed::errors(staged));
            connected(state, here)
        }
        Step::Mark { flags, .. } => match flags {
            // A transfer by CPU fails if its process is killed in the middle. Fences of other
            // processes return that failure, too.
            1 | 2 => connected(state, Allowed::or(&[EINTR, EIO])),
            _ => Allowed::errors(&[EINVAL]),
        },
        Step::Signal {
            flags,
            local,
            remote,
            ..
        } => {
            if flags & !0x33 != 0 || !matches!(flags & 3, 1 | 2) || flags & 0x30 == 0 {
                return Allowed::errors(&[EINVAL]);
            }
            // The 8 bytes have to lie in one page.
            let is_off = |offset: i64| offset % 4 != 0 || offset % PAGE as i64 > PAGE as i64 - 8;
            let is_bad = |flag, offset| flags & flag != 0 && is_off(offset);
            if is_bad(0x10, local) || is_bad(0x20, remote) {
                return connected(state, Allowed::errors(&[EINVAL, ENXIO, EACCES]));
            }
            connected(state, Allowed::or(&[EINTR, ENXIO, EACCES]))
        }
        _ => Allowed::or(&[]),
    }
}

fn connecting(state: u32, further: &[i32]) -> Allowed {
    let further = Allowed::errors(further);
    match state {
        UNBOUND | BOUND => Allowed::or(&[EINPROGRESS, ECONNREFUSED, EINTR]).join(further),
        // This call may collect the result of another thread's connect.
        ASKING => Allowed::or(&[EINPROGRESS, ECONNREFUSED, EINTR, EISCONN, ENOENT]),
        LISTENING => Allowed::errors(&[EOPNOTSUPP]),
        _ => Allowed::errors(&[EISCONN]),
    }
}

/// Returns the allowed results of a call that requires a connection: `here` on a connected
/// endpoint.
fn connected(state: u32, here: Allowed) -> Allowed {
    match state {
        CONNECTED => here,
        RESET => Allowed::errors(&[ECONNRESET]),
        // If the listener has accepted, calls may use the connection before a thread has collected
        // the result.
        ASKING => here.join(Allowed::errors(&[ENOTCONN, ECONNRESET])),
        _ => Allowed::errors(&[ENOTCONN]),
    }
}

/// Returns the events that `poll` may show on an endpoint in these states, and the events that it
/// has to show.
pub fn events(states: States) -> (i16, i16) {
    use libc::POLLERR as ERR;
    use libc::POLLHUP as HUP;
    use libc::POLLIN as IN;
    use libc::POLLOUT as OUT;
    let each = states.each().map(|state| match state {
        UNBOUND | BOUND => (ERR, ERR),
        LISTENING => (IN, 0),
        ASKING => (IN | OUT | ERR | HUP, 0),
        CONNECTED => (IN | OUT, 0),
        _ => (IN | OUT | HUP, HUP),
    });
    each.reduce(|one, other| (one.0 | other.0, one.1 & other.1))
        .unwrap_or((0, 0))
}

/// Returns the facts that a result proves of an endpoint.
pub fn proved(step: &Step, outcome: &Result<i64, Errno>) -> u32 {
    match (step, outcome) {
        (Step::Bind { .. }, Ok(_)) => IS_BOUND,
        (Step::Listen { .. }, Ok(_)) => LISTENS | IS_BOUND,
        (Step::Connect { .. } | Step::ConnectName { .. }, Ok(_) | Err(Errno(EISCONN))) => {
            IS_CONNECTED | IS_BOUND
        }
        _ => 0,
    }
}

/// Returns whether a result says that the peer of an endpoint with these facts is gone.
///
/// The result does not prove the fact, because other calls may not see the loss yet. The fact is
/// proved once `poll` shows it, too.
pub fn says_gone(facts: u32, outcome: &Result<i64, Errno>) -> bool {
    facts & (IS_CONNECTED | IS_RESET) == IS_CONNECTED
        && matches!(outcome, Err(Errno(ECONNRESET | ENODEV)))
}

/// Returns the facts that events prove of an endpoint with these facts.
pub fn proved_by_events(facts: u32, events: i16) -> u32 {
    match facts & IS_CONNECTED != 0 && events & libc::POLLHUP != 0 {
        true => IS_RESET,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting {
        peer: 0,
        is_staged: false,
        is_lossy: false,
        slow: 1,
        beside: 0,
    };

    fn bind(port: u16) -> Step {
        Step::Bind {
            actor: 0,
            slot: 0,
            port,
        }
    }

    const SEND: Step = Step::Send {
        actor: 0,
        slot: 0,
        len: 9,
        flags: 0,
    };

    #[test]
    fn unshared_new_endpoint_allows_one_outcome_per_call() {
        let states = States::of(0, Begun::of(0));
        assert_eq!(allowed(&bind(0), states, &SETTING), Allowed::or(&[]));
        assert_eq!(
            allowed(&SEND, states, &SETTING),
            Allowed::errors(&[ENOTCONN])
        );
        assert_eq!(events(states), (libc::POLLERR, libc::POLLERR));
    }

    #[test]
    fn concurrent_call_of_another_thread_allows_more_outcomes() {
        let binding = Begun::of(Kind::Bind.one());
        assert!(allowed(&bind(0), States::of(0, binding), &SETTING).has(Errno(EINVAL)));
        let connecting = States::of(0, Begun::of(Kind::Connect.one()));
        let may = allowed(&SEND, connecting, &SETTING);
        assert!(may.success && may.has(Errno(ENOTCONN)) && may.has(Errno(ECONNRESET)));
    }

    #[test]
    fn proved_state_is_kept_whatever_others_began() {
        let begun = Begun::of(u64::MAX);
        let listening = States::of(LISTENS | IS_BOUND, begun);
        assert_eq!(
            allowed(&bind(7), listening, &SETTING),
            Allowed::errors(&[EISCONN])
        );
        let reset = States::of(IS_CONNECTED | IS_RESET, begun);
        assert_eq!(
            allowed(&SEND, reset, &SETTING),
            Allowed::errors(&[ECONNRESET])
        );
        assert_eq!(events(reset).1, libc::POLLHUP);
    }

    #[test]
    fn poll_hangup_proves_that_the_peer_is_gone() {
        let reset = Err(Errno(ECONNRESET));
        assert_eq!(proved(&SEND, &reset), 0);
        assert!(says_gone(IS_CONNECTED, &reset));
        // A refused endpoint may never have been connected. If the reset is known, no result proves
        // it anew.
        assert!(!says_gone(0, &reset));
        assert!(!says_gone(IS_CONNECTED | IS_RESET, &reset));
        assert_eq!(proved_by_events(0, libc::POLLHUP), 0);
        assert_eq!(proved_by_events(IS_CONNECTED, libc::POLLIN), 0);
        assert_eq!(proved_by_events(IS_CONNECTED, libc::POLLHUP), IS_RESET);
    }

    #[test]
    fn nonblocking_call_gets_eintr_only_if_its_slot_may_change() {
        let accept = |flags| Step::Accept {
            actor: 0,
            slot: 0,
            into: 1,
            flags,
        };
        let listening = States::of(LISTENS | IS_BOUND, Begun::of(0));
        let may = allowed(&accept(0), listening, &SETTING);
        assert!(may.has(Errno(EAGAIN)) && !may.has(Errno(EINTR)));
        assert!(allowed(&accept(1), listening, &SETTING).has(Errno(EINTR)));
        assert!(allowed(&accept(0), States::ALL, &SETTING).has(Errno(EINTR)));
    }

    #[test]
    fn signal_across_a_page_border_is_not_allowed() {
        let connected = States::of(IS_CONNECTED, Begun::of(0));
        let at = |local| Step::Signal {
            actor: 0,
            slot: 0,
            flags: 0x11,
            local,
            remote: 1,
        };
        assert!(allowed(&at(4088), connected, &SETTING).success);
        for local in [4092, 2] {
            let may = allowed(&at(local), connected, &SETTING);
            assert!(!may.success && may.has(Errno(EINVAL)));
        }
    }

    #[test]
    fn possible_node_loss_allows_enodev_for_connected_endpoints() {
        let lossy = Setting {
            is_lossy: true,
            ..SETTING
        };
        let mark = Step::Mark {
            actor: 0,
            slot: 0,
            flags: 1,
        };
        let connected = States::of(IS_CONNECTED, Begun::of(0));
        assert!(allowed(&mark, connected, &lossy).has(Errno(ENODEV)));
        assert!(!allowed(&mark, connected, &SETTING).has(Errno(ENODEV)));
        assert!(!allowed(&mark, connected, &lossy).has(Errno(EINVAL)));
        assert!(allowed(&mark, States::ALL, &lossy).has(Errno(EINVAL)));
        let new = States::of(0, Begun::of(0));
        assert!(!allowed(&mark, new, &lossy).has(Errno(ENODEV)));
    }

    #[test]
    fn begun_calls_are_counted_per_kind() {
        let begun = Begun::of(3 * Kind::Bind.one() + 2 * Kind::Connect.one());
        assert!(begun.has(Kind::Bind) && !begun.has(Kind::Listen) && begun.has(Kind::Connect));
        assert_eq!(begun.each_once(), Kind::Bind.one() + Kind::Connect.one());
    }
}
