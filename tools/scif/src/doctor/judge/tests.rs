// SPDX-License-Identifier: GPL-2.0

//! Made-up machines, and what is said of them.

use super::*;
use crate::doctor::look::Engine;
use crate::doctor::look::Speed;
use crate::watch;
use std::collections::BTreeMap;

/// One with nothing wrong.
fn healthy() -> Facts {
    Facts {
        kernel: "7.3.4+deb13-amd64".into(),
        command_line: "intel_iommu=on".into(),
        is_loaded: true,
        has_device_file: true,
        knows_drivers: true,
        bridges: vec![Bridge {
            address: "0000:00:05.0".into(),
            id: "8086:0db4".into(),
            module: Some("ntb_hw_intel".into()),
            driver: Some("ntb_hw_intel".into()),
            bars: BTreeMap::from([(2, 1 << 20), (4, 1 << 30)]),
            iommu: Some("DMA-FQ".into()),
            client: Some(Client::Named("scif".into())),
            speed: None,
        }],
        engines: vec![Engine {
            name: "dma0chan0".into(),
            driver: Some("ioatdma".into()),
            users: 1,
        }],
        links: Some(watch::links(
            "link state node aperture aperture_bytes engines doorbells\n\
             loopback up - local 4096 0 0x1\n\
             ntb:0000:00:05.0 up 1 arena 1073741824 1 0xf\n",
        )),
        end_of_memory: Some(64 << 30),
        log: Some(vec![
            "scif: 0000:00:05.0: this is node 0 (NTB port 0)".into(),
        ]),
        ..Facts::default()
    }
}

fn worst(facts: &Facts) -> Option<Grade> {
    judge(facts).into_iter().map(|finding| finding.grade).max()
}

/// The finding with these words: how it is meant, and the advice.
fn found(facts: &Facts, words: &str) -> (Grade, String) {
    let all = judge(facts);
    let Some(finding) = all.iter().find(|finding| finding.text.contains(words)) else {
        panic!("nobody says '{words}': {all:#?}");
    };
    (finding.grade, finding.advice.clone().unwrap_or_default())
}

fn changed(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = healthy();
    change(&mut facts);
    facts
}

#[test]
fn a_healthy_machine() {
    assert_eq!(worst(&healthy()), Some(Grade::Good));
    assert_eq!(found(&healthy(), "1.00 GiB at a time").0, Grade::Good);
    assert_eq!(found(&healthy(), "node 1 is online").0, Grade::Good);
}

#[test]
fn modules_and_kernels() {
    let facts = changed(|facts| facts.is_loaded = false);
    assert_eq!(
        found(&facts, "not loaded"),
        (Grade::Problem, "modprobe scif".into())
    );
    let facts = changed(|facts| {
        facts.is_loaded = false;
        facts.is_installed = Some(false);
        facts.options = Some(BTreeMap::from([("CONFIG_NTB".into(), "m".into())]));
        facts.kernel = "6.12.1".into();
    });
    assert_eq!(
        found(&facts, "not installed for Linux 6.12.1").0,
        Grade::Problem
    );
    assert_eq!(found(&facts, "too old").0, Grade::Problem);
    assert_eq!(found(&facts, "without CONFIG_RUST").0, Grade::Problem);
    assert!(
        !judge(&facts)
            .iter()
            .any(|finding| finding.text.contains("CONFIG_NTB"))
    );
    let facts = changed(|facts| facts.has_device_file = false);
    assert_eq!(found(&facts, "no /dev/scif").0, Grade::Problem);
}

#[test]
fn bridges_and_their_users() {
    let facts = changed(|facts| facts.bridges.clear());
    assert!(found(&facts, "no PCI device").1.contains("BIOS"));
    let facts = changed(|facts| {
        facts.bridges.clear();
        facts.knows_drivers = false;
    });
    assert_eq!(found(&facts, "no drivers for bridges").0, Grade::Problem);
    let facts = changed(|facts| facts.bridges[0].driver = None);
    assert_eq!(found(&facts, "has no driver").1, "modprobe ntb_hw_intel");
    let facts = changed(|facts| facts.bridges[0].client = None);
    assert_eq!(
        found(&facts, "has not made an NTB device").0,
        Grade::Problem
    );
    let facts = changed(|facts| facts.bridges[0].client = Some(Client::Nobody));
    assert_eq!(found(&facts, "does not take it").0, Grade::Problem);
    let other = Client::Named("ntb_transport".into());
    let facts = changed(|facts| facts.bridges[0].client = Some(other));
    assert!(
        found(&facts, "is used by ntb_transport")
            .1
            .contains("rmmod ntb_transport")
    );
}

#[test]
fn a_bridge_that_is_slower_than_it_could_be() {
    let speed = |rate: &str, lanes| Speed {
        rate: rate.into(),
        lanes,
        best_rate: "16.0 GT/s PCIe".into(),
        most_lanes: 8,
    };
    let facts = changed(|facts| facts.bridges[0].speed = Some(speed("2.5 GT/s PCIe", 8)));
    assert_eq!(found(&facts, "connected with 2.5 GT/s").0, Grade::Advice);
    let facts = changed(|facts| facts.bridges[0].speed = Some(speed("16.0 GT/s PCIe", 8)));
    assert_eq!(worst(&facts), Some(Grade::Good));
}

#[test]
fn what_others_reach() {
    let with = |name: &str, value: &str| {
        changed(|facts| {
            facts.parameters.insert(name.into(), value.into());
        })
    };
    assert_eq!(
        found(&with("aperture", "flat"), "read and write all memory").0,
        Grade::Problem
    );
    let small = changed(|facts| facts.bridges[0].bars = BTreeMap::from([(2, 1 << 20)]));
    assert_eq!(found(&small, "have to fit into 1.00 MiB").0, Grade::Advice);
    let tiny = changed(|facts| facts.bridges[0].bars.clear());
    assert_eq!(
        found(&tiny, "its memory windows have 0 B").0,
        Grade::Problem
    );
    // Together they have room for as much as the smaller one twice.
    let two = |one: u64, other: u64| BTreeMap::from([(2, one), (4, other)]);
    let several = changed(|facts| facts.bridges[0].bars = two(64 << 20, 64 << 20));
    found(&several, "128.0 MiB at a time");
    let mut fewer = several;
    fewer.parameters.insert("memory_windows".into(), "1".into());
    found(&fewer, "64.0 MiB at a time");
    let unlike = changed(|facts| facts.bridges[0].bars = two(64 << 20, 48 << 20));
    found(&unlike, "64.0 MiB at a time");
    // Without an IOMMU.
    let distrusting = |end| {
        changed(|facts| {
            facts.bridges[0].iommu = Some("identity".into());
            facts.command_line = "quiet iommu=pt".into();
            facts.end_of_memory = end;
        })
    };
    let bare = |end| {
        let mut facts = distrusting(end);
        facts.parameters.insert("allow_flat".into(), "1".into());
        facts
    };
    for (facts, other) in [
        (
            bare(Some(64 << 30)),
            "or, give it a BAR that covers the 64.0 GiB",
        ),
        (
            distrusting(Some(64 << 30)),
            "64.0 GiB of this machine's memory and say allow_flat=1",
        ),
        (
            distrusting(Some(1 << 30)),
            "or, if the other host is trusted, say allow_flat=1",
        ),
    ] {
        let (grade, advice) = found(&facts, "staging slots and nothing else (bounce)");
        assert_eq!(grade, Grade::Advice);
        assert!(
            advice.contains("boot without iommu=pt") && advice.contains(other),
            "{advice}"
        );
    }
    assert_eq!(
        found(&bare(Some(1 << 30)), "all memory of this machine").0,
        Grade::Advice
    );
    assert_eq!(
        found(&bare(None), "could reach all memory").0,
        Grade::Advice
    );
    let mut arena = bare(Some(1 << 30));
    arena.parameters.insert("aperture".into(), "arena".into());
    assert_eq!(found(&arena, "aperture=arena needs").0, Grade::Problem);
}

#[test]
fn a_bridge_that_the_other_host_leads() {
    let idt = |allows_flat: &str, iommu: &str| {
        changed(|facts| {
            facts.bridges[0].driver = Some("ntb_hw_idt".into());
            facts.bridges[0].iommu = Some(iommu.into());
            facts
                .parameters
                .insert("allow_flat".into(), allows_flat.into());
        })
    };
    let text = "the other host says itself where its windows lead";
    let (grade, advice) = found(&idt("0", "identity"), text);
    assert_eq!(grade, Grade::Problem);
    assert!(advice.contains("say allow_flat=1"), "{advice}");
    assert_eq!(found(&idt("1", "identity"), text).0, Grade::Advice);
    let (grade, _) = found(&idt("0", "DMA"), "an IOMMU translates for it");
    assert_ne!(grade, Grade::Problem);
}

#[test]
fn engines_and_links() {
    let facts = changed(|facts| facts.engines.clear());
    assert!(found(&facts, "no DMA engine").1.contains("ioatdma"));
    let facts = changed(|facts| {
        facts.parameters.insert("dma_channels".into(), "0".into());
    });
    assert_eq!(found(&facts, "takes none").0, Grade::Advice);
    let state = |state: &str| {
        changed(|facts| {
            facts.links = Some(watch::links(&format!("link state node\nntb:x {state} -\n")));
        })
    };
    assert_eq!(
        found(&state("offering"), "nobody answers").0,
        Grade::Problem
    );
    assert_eq!(found(&state("down"), "does not come up").0, Grade::Problem);
    assert_eq!(found(&state("changing"), "is ending").0, Grade::Advice);
    let facts = changed(|facts| facts.links = None);
    assert_eq!(found(&facts, "can't be seen").0, Grade::Advice);
    let facts = changed(|facts| {
        facts.links = Some(watch::links(
            "link state node aperture aperture_bytes engines\nntb:x up 1 flat 4096 0\n",
        ));
    });
    assert_eq!(found(&facts, "no engine reaches node 1").0, Grade::Advice);
}

#[test]
fn the_last_words_of_the_log() {
    let with = |lines: &[&str]| {
        changed(|facts| {
            facts.log = Some(lines.iter().map(|line| (*line).to_owned()).collect());
        })
    };
    let refused = "scif: x: the device does not take the aperture: EINVAL";
    let begin = "scif: x: this is node 0 (NTB port 0)";
    let online = "scif: node 1 is online through x: arena";
    assert!(
        found(&with(&[begin, refused]), refused)
            .1
            .contains("alignment")
    );
    assert_eq!(worst(&with(&[refused, begin])), Some(Grade::Good));
    assert_eq!(worst(&with(&[begin, refused, online])), Some(Grade::Good));
    assert_eq!(worst(&with(&[begin, online, refused])), Some(Grade::Advice));
}
