// SPDX-License-Identifier: GPL-2.0

//! Makes a failing run as short as possible: leaves out parts as long as the rest still fails.

/// Returns a shorter list for which `fails` is still true, and from which no single call can be
/// left out.
pub fn shrink<T: Clone>(calls: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut calls = calls.to_vec();
    let mut part = calls.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        let mut has_shrunk = false;
        while start < calls.len() {
            let end = (start + part).min(calls.len());
            let rest: Vec<T> = [&calls[..start], &calls[end..]].concat();
            if fails(&rest) {
                calls = rest;
                has_shrunk = true;
            } else {
                start = end;
            }
        }
        if part == 1 && !has_shrunk {
            break;
        }
        if !has_shrunk || part > calls.len() {
            part = (part / 2).max(1).min(calls.len());
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Call;

    #[test]
    fn shrink_keeps_only_needed_calls() {
        let calls: Vec<Call> = (0..500).map(|slot| Call::Open { slot }).collect();
        let needed = [Call::Open { slot: 3 }, Call::Open { slot: 411 }];
        let mut tries = 0;
        let left = shrink(&calls, |calls| {
            tries += 1;
            needed.iter().all(|call| calls.contains(call))
        });
        assert_eq!(left, needed);
        assert!(tries < 200, "{tries} tries");
    }

    #[test]
    fn shrink_keeps_a_single_call() {
        let calls = [Call::Open { slot: 1 }];
        assert_eq!(shrink(&calls, |calls| !calls.is_empty()), calls);
    }
}
