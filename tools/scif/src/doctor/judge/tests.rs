// SPDX-License-Identifier: GPL-2.0

//! Made-up machines, and what is said of them.

use super::*;
use crate::doctor::Grade;
use crate::doctor::facts::Bridge;
use crate::doctor::facts::Caller;
use crate::doctor::facts::Client;
use crate::doctor::facts::Cpus;
use crate::doctor::facts::Device;
use crate::doctor::facts::Engine;
use crate::doctor::facts::Interrupt;
use crate::doctor::facts::Speed;
use crate::watch;
use std::collections::BTreeMap;

/// One with nothing wrong.
fn healthy() -> Facts {
    Facts {
        kernel: "7.3.4+deb13-amd64".into(),
        command_line: "intel_iommu=on".into(),
        is_loaded: true,
        device: Device {
            exists: true,
            group: Some("scif".into()),
            number: Some("10:120".into()),
            ..Device::default()
        },
        caller: Caller {
            name: "root".into(),
            pins: Some(8 << 20),
            pins_all: true,
            ..Caller::default()
        },
        knows_drivers: true,
        bridges: vec![Bridge {
            address: "0000:00:05.0".into(),
            id: "8086:0db4".into(),
            module: Some("ntb_hw_intel".into()),
            driver: Some("ntb_hw_intel".into()),
            bars: BTreeMap::from([(2, 1 << 20), (4, 1 << 30)]),
            iommu: Some("DMA-FQ".into()),
            client: Some(Client::Named("scif".into())),
            has_module: true,
            ..Bridge::default()
        }],
        has_iommu: true,
        engines: vec![Engine {
            name: "dma0chan0".into(),
            driver: Some("ioatdma".into()),
            users: 1,
            numa: None,
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

/// The commands of the finding with these words.
fn commands(facts: &Facts, words: &str) -> Vec<String> {
    let all = judge(facts).into_iter();
    let mut with_words = all.filter(|finding| finding.text.contains(words));
    with_words
        .next()
        .map(|finding| finding.commands)
        .unwrap_or_default()
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
    assert_eq!(found(&facts, "not loaded").0, Grade::Problem);
    assert_eq!(commands(&facts, "not loaded"), ["modprobe scif"]);
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
    let facts = changed(|facts| facts.device.exists = false);
    assert_eq!(found(&facts, "no /dev/scif").0, Grade::Problem);
    assert_eq!(
        commands(&facts, "no /dev/scif")[1],
        "mknod -m 660 /dev/scif c 10 120"
    );
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
    let facts = changed(|facts| {
        facts.bridges[0].driver = None;
        facts.bridges[0].has_module = false;
    });
    assert_eq!(commands(&facts, "has no driver"), ["modprobe ntb_hw_intel"]);
    let facts = changed(|facts| facts.bridges[0].client = None);
    assert_eq!(
        found(&facts, "has not made an NTB device").0,
        Grade::Problem
    );
    let facts = changed(|facts| {
        facts.bridges[0].driver = Some("switchtec".into());
        facts.bridges[0].client = None;
    });
    assert_eq!(
        commands(&facts, "its bridge has none"),
        ["modprobe ntb_hw_switchtec"]
    );
    let facts = changed(|facts| facts.bridges[0].client = Some(Client::Nobody));
    let bind = "echo 0000:00:05.0 > /sys/bus/ntb/drivers/scif/bind";
    assert_eq!(found(&facts, "has not taken it").0, Grade::Problem);
    assert_eq!(commands(&facts, "has not taken it"), [bind]);
    let other = Client::Named("ntb_transport".into());
    let facts = changed(|facts| facts.bridges[0].client = Some(other));
    let unbind = "echo 0000:00:05.0 > /sys/bus/ntb/drivers/ntb_transport/unbind";
    assert_eq!(commands(&facts, "is used by ntb_transport"), [unbind, bind]);
}

#[test]
fn a_driver_that_refuses_its_bridge() {
    let refused = changed(|facts| {
        facts.bridges[0].driver = None;
        facts.bridges[0].client = None;
    });
    let bind = "echo 0000:00:05.0 > /sys/bus/pci/drivers/ntb_hw_intel/bind";
    assert_eq!(commands(&refused, "loaded, but does not drive it"), [bind]);
    let said = "ntb_hw_intel 0000:00:05.0: probe with driver ntb_hw_intel failed with error -5";
    let mut quoted = refused;
    quoted.log.as_mut().unwrap().push(said.into());
    found(&quoted, said);
    quoted.bridges[0].unassigned = vec![4];
    let (_, advice) = found(&quoted, "BAR 4 has no address");
    assert!(advice.contains("above 4G"), "{advice}");
    assert_eq!(commands(&quoted, "BAR 4").len(), 2);
}

#[test]
fn a_bridge_that_scif_refuses() {
    let line = "scif: 0000:00:05.0: it takes a device with 2 scratchpads or message registers";
    let with = |lines: &[&str]| {
        changed(|facts| {
            facts.bridges[0].client = Some(Client::Nobody);
            facts.log = Some(lines.iter().map(|line| (*line).to_owned()).collect());
        })
    };
    assert!(found(&with(&[line]), line).1.contains("too few"));
    let gone = "scif: 0000:00:05.0: gone";
    found(&with(&[line, gone]), "has not taken it");
}

#[test]
fn users_without_rights() {
    let with = |group: &str, members: Option<&[&str]>| {
        changed(|facts| {
            facts.device.refusal = Some("EACCES".into());
            facts.device.group = Some(group.into());
            facts.caller.name = "ann".into();
            facts.caller.members =
                members.map(|names| names.iter().map(|name| (*name).into()).collect());
        })
    };
    let text = "the user ann can't open /dev/scif (EACCES)";
    assert_eq!(found(&with("root", None), text).0, Grade::Problem);
    assert_eq!(
        commands(&with("root", None), text),
        [
            "groupadd --system scif",
            "chgrp scif /dev/scif",
            "chmod 660 /dev/scif",
            "usermod -aG scif ann"
        ]
    );
    assert_eq!(
        commands(&with("scif", Some(&["bob"])), text),
        ["usermod -aG scif ann"]
    );
    let (_, advice) = found(&with("scif", Some(&["ann"])), text);
    assert!(
        advice.contains("log in again") && commands(&with("scif", Some(&["ann"])), text).is_empty()
    );
    let facts = changed(|facts| facts.device.refusal = Some("EPERM".into()));
    assert!(found(&facts, "EPERM").1.contains("container"));
    // Without the module there is no right that could be missing.
    let facts = changed(|facts| {
        facts.device.refusal = Some("ENXIO".into());
        facts.is_loaded = false;
    });
    assert!(!judge(&facts).iter().any(|finding| finding.about == "user"));
}

#[test]
fn users_who_may_pin_little() {
    let with = |pins| {
        changed(|facts| {
            facts.caller.pins_all = false;
            facts.caller.pins = pins;
        })
    };
    let (grade, _) = found(&with(Some(8 << 20)), "may pin 8.00 MiB");
    assert_eq!(grade, Grade::Advice);
    for enough in [Some(1 << 30), None] {
        assert_eq!(worst(&with(enough)), Some(Grade::Good));
    }
}

#[test]
fn interrupts_and_isolated_cpus() {
    let with = |isolated: &[u32]| {
        changed(|facts| {
            facts.cpus = Cpus {
                online: vec![0, 1, 2],
                isolated: isolated.to_vec(),
            };
            let interrupt = |number, cpus: &[u32]| Interrupt {
                number,
                cpus: cpus.to_vec(),
            };
            facts.bridges[0].interrupts =
                vec![interrupt(34, &[0]), interrupt(35, &[1]), interrupt(36, &[])];
        })
    };
    assert_eq!(worst(&with(&[])), Some(Grade::Good));
    assert_eq!(worst(&with(&[2])), Some(Grade::Good));
    assert_eq!(
        commands(&with(&[1]), "1 of its interrupts"),
        ["for irq in 35; do echo 0,2 > /proc/irq/$irq/smp_affinity_list; done"]
    );
}

#[test]
fn places_of_engines_and_groups() {
    let with = |bridge, engines: &[Option<u32>]| {
        changed(|facts| {
            facts.bridges[0].numa = bridge;
            let engines = engines.iter().map(|numa| Engine {
                numa: *numa,
                ..facts.engines[0].clone()
            });
            facts.engines = engines.collect();
        })
    };
    let text = "no DMA engine is at NUMA node 1, where bridge 0000:00:05.0 is, but at 0, 2";
    found(&with(Some(1), &[Some(2), Some(0), Some(2)]), text);
    for (bridge, engines) in [
        (Some(1), [Some(0), Some(1)]),
        (Some(1), [Some(0), None]),
        (None, [Some(0); 2]),
    ] {
        assert_eq!(worst(&with(bridge, &engines)), Some(Grade::Good));
    }
    let facts = changed(|facts| facts.bridges[0].companions = vec!["0000:00:06.0".into()]);
    assert_eq!(
        found(&facts, "has other devices, too: 0000:00:06.0").0,
        Grade::Advice
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
    for unknown in [
        speed("Unknown", 0),
        speed("Unknown", 8),
        speed("2.5 GT/s PCIe", 0),
    ] {
        let facts = changed(|facts| facts.bridges[0].speed = Some(unknown));
        assert_eq!(worst(&facts), Some(Grade::Good));
    }
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
            "for more, give it a BAR that covers the 64.0 GiB",
        ),
        (
            distrusting(Some(64 << 30)),
            "64.0 GiB of this machine's memory and say allow_flat=1",
        ),
        (
            distrusting(Some(1 << 30)),
            "for more, if the other host is trusted, say allow_flat=1",
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
fn how_an_iommu_comes_to_translate() {
    let text = "staging slots and nothing else";
    let with = |kind: Option<&str>, has_iommu, command_line: &str| {
        changed(|facts| {
            facts.bridges[0].iommu = kind.map(Into::into);
            facts.has_iommu = has_iommu;
            facts.command_line = command_line.into();
        })
    };
    let advice = |facts: &Facts| found(facts, text).1;
    assert!(advice(&with(None, false, "quiet")).contains("in the BIOS"));
    assert!(advice(&with(None, false, "intel_iommu=off")).contains("boot without intel_iommu=off"));
    assert!(advice(&with(None, true, "quiet")).contains("newer BIOS"));
    let identity = with(Some("identity"), true, "intel_iommu=on");
    let said = advice(&identity);
    assert!(
        said.contains("iommu.passthrough=0") && !said.contains("BIOS"),
        "{said}"
    );
    assert_eq!(
        commands(&identity, text),
        [
            "echo 0000:00:05.0 > /sys/bus/pci/drivers/ntb_hw_intel/unbind",
            "echo DMA > /sys/bus/pci/devices/0000:00:05.0/iommu_group/type",
            "echo 0000:00:05.0 > /sys/bus/pci/drivers/ntb_hw_intel/bind",
        ]
    );
    let mut shared = identity;
    shared.bridges[0].companions = vec!["0000:00:06.0".into()];
    assert!(advice(&shared).contains("drivers of 0000:00:06.0 unbound"));
}

#[test]
fn memory_that_is_bounced() {
    let with = |kind: &str, word: &str| {
        changed(|facts| {
            facts.bridges[0].iommu = Some(kind.into());
            facts.command_line = format!("quiet {word}");
        })
    };
    let text = "no memory that the bridge may lead to";
    for word in ["swiotlb=force", "swiotlb=65536,force"] {
        let (grade, advice) = found(&with("identity", word), text);
        assert_eq!(
            (grade, advice.as_str()),
            (Grade::Problem, "boot without swiotlb=force")
        );
    }
    for facts in [
        with("identity", "swiotlb=noforce"),
        with("DMA", "swiotlb=force"),
    ] {
        assert!(
            !judge(&facts)
                .iter()
                .any(|finding| finding.text.contains(text))
        );
    }
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
    // An IOMMU is of no use if it takes the bridge for several devices.
    let shared = |allows_flat: &str| {
        let mut facts = idt(allows_flat, "DMA");
        facts.bridges[0].companions = vec!["0000:00:06.0".into()];
        facts
    };
    let (grade, advice) = found(&shared("0"), "with which the bridge shares an IOMMU group");
    assert_eq!(grade, Grade::Problem);
    assert!(advice.contains("allow_flat=1"), "{advice}");
    let trusted = found(&shared("1"), "its IOMMU group has other devices");
    assert_eq!(trusted.0, Grade::Advice);
}

#[test]
fn engines_and_links() {
    let facts = changed(|facts| facts.engines.clear());
    assert!(found(&facts, "no DMA engine").1.contains("ioatdma"));
    let facts = changed(|facts| {
        facts.engines.clear();
        facts.engine_modules = vec!["plx_dma".into()];
    });
    assert_eq!(commands(&facts, "no DMA engine"), ["modprobe plx_dma"]);
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
            "link state node aperture aperture_bytes engines\nntb:0000:00:05.0 up 1 flat 4096 0\n",
        ));
    });
    assert!(commands(&facts, "no engine reaches node 1").is_empty());
    let mut late = facts;
    late.engines[0].users = 0;
    let (grade, advice) = found(&late, "no engine reaches node 1");
    assert!(grade == Grade::Advice && advice.contains("nobody uses dma0chan0"));
    assert_eq!(commands(&late, "no engine reaches node 1").len(), 2);
}

#[test]
fn engines_of_unfit_drivers() {
    let of = |drivers: &[&str]| {
        changed(|facts| {
            let engines = drivers.iter().map(|driver| Engine {
                driver: Some((*driver).to_owned()),
                ..facts.engines[0].clone()
            });
            facts.engines = engines.collect();
        })
    };
    let facts = of(&["ptdma", "ae4dma", "ptdma"]);
    let (grade, advice) = found(&facts, "of ptdma are not used");
    assert!(grade == Grade::Advice && advice.contains("plx_dma"));
    assert_eq!(found(&facts, "of ae4dma are not used").0, Grade::Advice);
    // They are as good as none.
    assert!(!found(&facts, "no DMA engine").1.contains("ptdma"));
    let facts = of(&["ptdma", "plx_dma"]);
    assert_eq!(found(&facts, "1 DMA channels (plx_dma)").0, Grade::Good);
}

#[test]
fn the_last_words_of_the_log() {
    let with = |state: &str, lines: &[&str]| {
        changed(|facts| {
            facts.log = Some(lines.iter().map(|line| (*line).to_owned()).collect());
            facts.links = Some(watch::links(&format!(
                "link state node aperture\nntb:0000:00:05.0 {state} arena\n"
            )));
        })
    };
    let refused = "scif: 0000:00:05.0: the device does not take the aperture: EINVAL";
    let begin = "scif: 0000:00:05.0: this is node 0 (NTB port 0)";
    let online = "scif: node 1 is online through 0000:00:05.0: arena";
    let down = |lines: &[&str]| with("down -", lines);
    let up = |lines: &[&str]| with("up 1", lines);
    let (grade, meaning) = found(&down(&[begin, refused]), refused);
    assert_eq!(grade, Grade::Problem);
    assert!(meaning.contains("alignment"));
    // It is said once, and nobody looks at the cable.
    let findings = judge(&down(&[begin, refused]));
    assert_eq!(
        findings
            .iter()
            .filter(|each| each.text.contains(refused))
            .count(),
        1
    );
    assert!(
        !findings
            .iter()
            .any(|each| each.text.contains("does not come up"))
    );
    found(&down(&[refused, begin]), "does not come up");
    found(&down(&[begin, refused, online]), "does not come up");
    assert_eq!(worst(&up(&[refused, begin])), Some(Grade::Good));
    assert_eq!(worst(&up(&[begin, online, refused])), Some(Grade::Advice));
    // What is said of another bridge is not of this one.
    let mut two = down(&[begin, "scif: 0000:00:06.0: can't offer a link: ENOMEM"]);
    let other = Bridge {
        address: "0000:00:06.0".into(),
        ..two.bridges[0].clone()
    };
    two.bridges.push(other);
    found(&two, "does not come up");
}

/// The texts of a folder's files, and of those in folders below.
fn texts(folder: &std::path::Path) -> String {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => texts(&path),
            false => std::fs::read_to_string(&path).unwrap(),
        })
        .collect()
}

/// What is looked for in the log is there in the module's source, and what the user guide is said to have, too.
#[test]
fn the_module_has_the_words() {
    let above = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let module = texts(&above.join("drivers/misc/scif"));
    for message in kernel_log::MESSAGES {
        // The number of an error is printed by itself.
        let words = message.words.trim_end_matches(" ENOMEM");
        assert!(module.contains(words), "the module does not say '{words}'");
    }
    for words in ["this is node", "is online through", "gone"] {
        assert!(module.contains(words), "the module does not say '{words}'");
    }
    let guide = std::fs::read_to_string(above.join("Documentation/user-guide.rst")).unwrap();
    let chapters = kernel_log::MESSAGES
        .iter()
        .filter_map(|message| message.meaning.split_once("the chapter \""));
    for (_, rest) in chapters {
        let chapter = rest.split('"').next().unwrap();
        assert!(
            guide.contains(&format!("\n{chapter}\n===")),
            "no chapter {chapter}"
        );
    }
}
