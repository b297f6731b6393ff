// SPDX-License-Identifier: GPL-2.0

//! The packed extents of a window on their way into messages, as many into each as it holds.

use crate::logic::{
    envelope::ChannelId,
    extents,
    messages::{
        Message,
        WindowId,
        EXTENTS_PER_MESSAGE,
        PAGES_PER_MESSAGE, //
    },
};
use kernel::prelude::*;

/// See the head of this file.
pub(super) struct PackedExtents<I> {
    extents: I,
    /// Those that come next.
    ready: [u64; PAGES_PER_MESSAGE],
    count: usize,
}

impl<I: Iterator<Item = Option<u64>>> PackedExtents<I> {
    pub(super) fn new(extents: I) -> Self {
        Self {
            extents,
            ready: [0; PAGES_PER_MESSAGE],
            count: 0,
        }
    }

    /// Has as many ready as a message can hold. EINVAL for one that could not be packed.
    fn make_ready(&mut self) -> Result {
        while let Some(place) = self.ready.get_mut(self.count) {
            let Some(extent) = self.extents.next() else {
                break;
            };
            *place = extent.ok_or(EINVAL)?;
            self.count += 1;
        }
        Ok(())
    }

    /// Those that are ready and have one page each, up to the first that has more.
    fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        let ready = self.ready.iter().take(self.count);
        ready.map_while(|extent| extents::only_page(*extent))
    }

    /// Takes the next ones, as many as there is room for, and says how many.
    pub(super) fn take<const N: usize>(&mut self) -> Result<([u64; N], u32)> {
        self.make_ready()?;
        let mut extents = [0; N];
        for (place, extent) in extents.iter_mut().zip(self.ready.iter().take(self.count)) {
            *place = *extent;
        }
        Ok((extents, self.remove(N)))
    }

    /// Drops up to so many of those that are ready; returns how many.
    fn remove(&mut self, count: usize) -> u32 {
        let removed = count.min(self.count);
        self.ready.rotate_left(removed);
        self.count -= removed;
        removed as u32
    }

    /// A message about the next ones, if there are any: by their pages, where more fit into it so.
    pub(super) fn next_part(
        &mut self,
        target: ChannelId,
        window: WindowId,
    ) -> Result<Option<Message>> {
        self.make_ready()?;
        let count = self.pages().count();
        if count > EXTENTS_PER_MESSAGE {
            let mut pages = [0; PAGES_PER_MESSAGE];
            for (place, page) in pages.iter_mut().zip(self.pages()) {
                *place = page;
            }
            return Ok(Some(Message::WindowPages {
                target,
                window,
                count: self.remove(count),
                pages,
            }));
        }
        let (extents, count) = self.take::<EXTENTS_PER_MESSAGE>()?;
        Ok((count > 0).then_some(Message::WindowExtents {
            target,
            window,
            count,
            extents,
        }))
    }
}

#[kunit_tests(scif_memory_packed_extents)]
mod tests {
    use super::*;

    const TARGET: ChannelId = ChannelId(1);
    const WINDOW: WindowId = WindowId(2);

    /// How many extents each message has, and whether it names them by their pages.
    fn parts(extents: &[u64]) -> Result<KVec<(u32, bool)>> {
        let mut packed = PackedExtents::new(extents.iter().map(|extent| Some(*extent)));
        let mut parts = KVec::new();
        while let Some(part) = packed.next_part(TARGET, WINDOW)? {
            let part = match part {
                Message::WindowPages { count, .. } => (count, true),
                Message::WindowExtents { count, .. } => (count, false),
                _ => return Err(EINVAL),
            };
            parts.push(part, GFP_KERNEL)?;
        }
        Ok(parts)
    }

    #[test]
    fn single_pages_go_by_tens() -> Result {
        let page = extents::pack_page(7);
        assert_eq!(
            &parts(&[page; 23])?[..],
            [(10, true), (10, true), (3, false)]
        );
        assert_eq!(&parts(&[page; 6])?[..], [(6, true)]);
        assert!(parts(&[])?.is_empty());
        Ok(())
    }

    #[test]
    fn longer_ones_go_by_fives() -> Result {
        let (page, two) = (extents::pack_page(7), extents::pack_page(8) | 1);
        let mixed = [page, two, page, two, page, two, page];
        assert_eq!(&parts(&mixed)?[..], [(5, false), (2, false)]);
        let late = [page, page, page, page, page, page, page, two];
        assert_eq!(&parts(&late)?[..], [(7, true), (1, false)]);
        Ok(())
    }

    #[test]
    fn all_come_in_order() -> Result {
        let mut packed = PackedExtents::new((0..17).map(|it| Some(extents::pack_page(it))));
        let (first, count) = packed.take::<2>()?;
        assert_eq!((first, count), ([0, 1 << 20], 2));
        let Some(Message::WindowPages { pages, .. }) = packed.next_part(TARGET, WINDOW)? else {
            return Err(EINVAL);
        };
        assert_eq!(pages, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let mut bad = PackedExtents::new([None].into_iter());
        assert_eq!(bad.next_part(TARGET, WINDOW).err(), Some(EINVAL));
        Ok(())
    }
}
