// SPDX-License-Identifier: GPL-2.0
//! Tests of the writes of an end that arrive late.

use super::*;
use crate::order::Engines;
use crate::order::Initiator;

#[test]
fn weak_order_delays_stores_and_doorbells_but_not_messages() {
    let mut late = [0, 0];
    for seed in 0..100 {
        let engines = Engines::Switch;
        let (_, [a, b]) = up_in(Some(WeakOrder { seed, engines }));
        let memory = b.reachable(0);
        a.translate(1, IOVA, BAR + WINDOW);
        a.port.write(Initiator::Processor, 0, 8, &[1]);
        let stored = || {
            let mut data = [0];
            memory.ram().read(8, &mut data).unwrap();
            data == [1]
        };
        a.send(2, 0xdead_beef);
        assert_eq!((b.read(0x448), b.interrupted()), (0xdead_beef, 1));
        b.write(MESSAGES, 1 << 18);
        a.write(RING, 0x9);
        // All doorbells of one write arrive, or none, at both ends.
        let bells = b.read(DOORBELLS);
        assert!(bells == 0 || bells == 0x9, "{bells:#x}");
        assert_eq!(a.read(DOORBELLS), bells);
        late[0] += usize::from(!stored());
        late[1] += usize::from(bells == 0);
        a.port.push(Initiator::Processor);
        assert!(stored());
        // No write is held for longer.
        (0..256).for_each(|_| a.port.push(Initiator::Processor));
        assert_eq!((b.read(DOORBELLS), b.interrupted()), (0x9, 1));
    }
    assert!(late.iter().all(|late| (5..95).contains(late)), "{late:?}");
}
