// SPDX-License-Identifier: GPL-2.0
//! The seed of an emulator whose order is weak, by the control socket.

use ntb_emulator::order::Engines;
use ntb_emulator::order::WeakOrder;

use crate::lab::Lab;

#[test]
fn seed_of_the_weak_order_can_be_changed() {
    let lab = Lab::with(2, &[(0, 1)], |topology| {
        topology.weak_order = Some(WeakOrder {
            seed: 7,
            engines: Engines::Switch,
        });
    });
    let mut control = lab.control();
    assert_eq!(control.state().unwrap().seed, Some(7));
    control.reseed(8).unwrap();
    assert_eq!(control.state().unwrap().seed, Some(8));
    lab.healthy();
}

#[test]
fn reseed_without_weak_order_is_refused() {
    let lab = Lab::pair();
    let mut control = lab.control();
    assert_eq!(control.state().unwrap().seed, None);
    let error = control.reseed(8).unwrap_err().to_string();
    assert!(error.contains("weak_order"), "{error}");
    lab.healthy();
}
