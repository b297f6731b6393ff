// SPDX-License-Identifier: GPL-2.0
//! Tests of configurations: the valid ones are read, and others are refused.

use super::*;

fn guest(number: usize) -> Guest {
    Guest {
        ram_file: format!("/ram-{number}").into(),
        ram_size: 64 << 20,
        dma_channels: 1,
        engine: None,
    }
}

fn link(upstream: usize, downstream: usize, windows: Windows) -> Link {
    Link {
        upstream,
        downstream,
        personality: Personality::Gen5,
        windows,
        model: None,
    }
}

fn topology(guests: usize, links: Vec<Link>) -> Topology {
    Topology {
        directory: "/run".into(),
        guests: (0..guests).map(guest).collect(),
        links,
        slowdown: 1,
        weak_order: None,
    }
}

#[test]
fn documented_model_configuration_is_accepted() {
    let text = r#"{
        "directory": "/d",
        "slowdown": 20,
        "guests": [
            { "ram_file": "/d/ram-0", "ram_size": 536870912, "engine": {} },
            { "ram_file": "/d/ram-1", "ram_size": 536870912,
              "engine": { "bandwidth": 1000000000, "descriptor_ns": 300 } }
        ],
        "links": [
            { "upstream": 0, "downstream": 1, "model": {} },
            { "upstream": 0, "downstream": 1, "model": { "read_ns": 1500 } },
            { "upstream": 0, "downstream": 1 }
        ]
    }"#;
    let topology: Topology = serde_json::from_str(text).unwrap();
    topology.validate().unwrap();
    assert_eq!(topology.slowdown, 20);
    assert_eq!(topology.guests[0].engine, Some(EngineFigures::default()));
    let engine = topology.guests[1].engine.unwrap();
    assert_eq!(engine.bandwidth, 1_000_000_000);
    assert_eq!(topology.links[0].model, Some(LinkFigures::GEN3_X8));
    assert_eq!(topology.links[1].model.unwrap().read_ns, 1500);
    assert_eq!(topology.links[2].model, None);
    assert!(topology.has_model());
    let again: Topology = serde_json::from_str(&serde_json::to_string(&topology).unwrap()).unwrap();
    assert_eq!(again, topology);
}

#[test]
fn weak_order_of_windows_that_cannot_reorder_is_refused() {
    let with = |windows, engines: &str| {
        let order = format!(r#"{{ "seed": 7, {engines} }}"#).replace(",  }", " }");
        let mut topology = topology(2, vec![link(0, 1, windows)]);
        topology.weak_order = Some(serde_json::from_str(&order).unwrap());
        topology
    };
    let (switch, root) = (r#""engines": "switch""#, r#""engines": "root""#);
    let trapped = Windows::Trapped { size: 1 << 20 };
    assert_eq!(
        with(trapped, "").weak_order,
        with(trapped, switch).weak_order
    );
    for windows in [trapped, Windows::Aperture, Windows::Mixed] {
        with(windows, switch).validate().unwrap();
        assert_eq!(with(windows, root).validate().is_ok(), windows == trapped);
    }
    // The aperture of IDT traps.
    let mut idt = with(Windows::Aperture, root);
    idt.links[0].personality = Personality::Idt;
    idt.validate().unwrap();
    let mut topology = with(trapped, switch);
    topology.links[0].model = Some(LinkFigures::GEN3_X8);
    let error = topology.validate().unwrap_err();
    assert!(error.to_string().contains("not both"), "{error}");
}

#[test]
fn documented_configuration_is_accepted() {
    let text = r#"{
        "directory": "/d",
        "guests": [
            { "ram_file": "/d/ram-0", "ram_size": 536870912, "dma_channels": 2 },
            { "ram_file": "/d/ram-1", "ram_size": 536870912 }
        ],
        "links": [
            { "upstream": 0, "downstream": 1 },
            { "upstream": 0, "downstream": 1, "personality": "gen3", "windows": "aperture" },
            { "upstream": 0, "downstream": 1, "personality": "gen5",
              "windows": { "fixed": { "base": 268435456, "size": 2097152 } } }
        ]
    }"#;
    let topology: Topology = serde_json::from_str(text).unwrap();
    topology.validate().unwrap();
    assert!(!topology.has_model());
    assert_eq!(topology.guests[1].dma_channels, 1);
    assert_eq!(topology.links[0].personality, Personality::Gen5);
    assert_eq!(topology.links[0].windows, Windows::Aperture);
    assert_eq!(topology.links[1].personality, Personality::Gen3);
    assert_eq!(
        topology.links[2].windows,
        Windows::Fixed {
            base: 0x1000_0000,
            size: 0x20_0000
        }
    );
    assert_eq!(
        topology.ntb_sockets(1)[2],
        Path::new("/d/guest-1-ntb-2.sock")
    );
    assert_eq!(
        topology.dma_sockets(0)[1],
        Path::new("/d/guest-0-dma-1.sock")
    );
    let again: Topology = serde_json::from_str(&serde_json::to_string(&topology).unwrap()).unwrap();
    assert_eq!(again, topology);
}

#[test]
fn star_centre_has_one_function_per_link() {
    let star = topology(
        3,
        vec![link(0, 1, Windows::Aperture), link(0, 2, Windows::Aperture)],
    );
    star.validate().unwrap();
    let centre: Vec<_> = star.ntb_functions(0).map(|f| (f.peer, f.end)).collect();
    assert_eq!(centre, [(1, 0), (2, 0)]);
    let leaf: Vec<_> = star.ntb_functions(2).map(|f| (f.link, f.end)).collect();
    assert_eq!(leaf, [(1, 1)]);
    assert_eq!(star.sockets().len(), 1 + 3 + 4);
}

#[test]
fn impossible_topologies_are_refused() {
    let refused = |topology: Topology, why: &str| {
        let error = format!("{:#}", topology.validate().unwrap_err());
        assert!(error.contains(why), "{error}");
    };
    refused(
        topology(1, vec![link(0, 1, Windows::Aperture)]),
        "does not exist",
    );
    refused(
        topology(1, vec![link(0, 0, Windows::Aperture)]),
        "both ends",
    );
    let base = 63 << 20;
    let fixed = Windows::Fixed {
        base,
        size: 1 << 20,
    };
    refused(topology(2, vec![link(0, 1, fixed)]), "do not fit");
    let fixed = Windows::Fixed {
        base: u64::MAX & !0xfff,
        size: 1 << 20,
    };
    refused(topology(2, vec![link(0, 1, fixed)]), "do not fit");
    let fixed = Windows::Fixed { base, size: 3 };
    refused(topology(2, vec![link(0, 1, fixed)]), "power of two");
    let trapped = Windows::Trapped { size: 0 };
    refused(topology(2, vec![link(0, 1, trapped)]), "power of two");
    let mut odd = topology(1, vec![]);
    odd.guests[0].ram_size = 4095;
    refused(odd, "multiple");
    let mut big = topology(1, vec![]);
    big.guests[0].ram_size = 4 << 30;
    refused(big, "file offsets");
    let mut same = topology(2, vec![]);
    same.guests[1].ram_file = same.guests[0].ram_file.clone();
    refused(same, "its own RAM file");
    let mut model = link(0, 1, Windows::Aperture);
    model.model = Some(LinkFigures {
        payload: 3,
        ..LinkFigures::default()
    });
    refused(topology(2, vec![model]), "link 0: model: payload 3");
    let mut engine = topology(1, vec![]);
    engine.guests[0].engine = Some(EngineFigures {
        bandwidth: 0,
        ..EngineFigures::default()
    });
    refused(engine, "guest 0: engine: bandwidth 0");
    let mut slow = topology(1, vec![]);
    slow.slowdown = 0;
    refused(slow, "slowdown 0");
    let mut long = topology(1, vec![]);
    long.directory = "/x".repeat(60).into();
    refused(long, "shorter directory");
}
