// SPDX-License-Identifier: GPL-2.0

//! Whether the user who runs doctor may use SCIF, and how much memory that user may pin.

use super::findings::Advice;
use super::findings::Findings;
use super::findings::device_file;
use crate::doctor::facts::Facts;
use crate::format::size;

/// The limit of pinned memory below which the doctor warns, because users soon reach it.
const FEW_PINS: u64 = 64 << 20;

pub(super) fn judge(facts: &Facts, findings: &mut Findings) {
    rights(facts, findings);
    pins(facts, findings);
}

fn rights(facts: &Facts, findings: &mut Findings) {
    let Some(refusal) = facts.device.refusal.as_deref().filter(|_| facts.is_loaded) else {
        return;
    };
    let name = &facts.caller.name;
    let text = format!("the user {name} can't open /dev/scif ({refusal})");
    let advice = match refusal {
        "EACCES" => membership(facts),
        "EPERM" => "a container has to be given the device: --device /dev/scif".into(),
        "ENXIO" | "ENODEV" => {
            device_file(facts, "it is not the device of the module: make it anew")
        }
        "EMFILE" | "ENFILE" => "too many files are open: ulimit -n".into(),
        _ => "free memory, and try again".into(),
    };
    findings.problem("user", text, advice);
}

/// Returns the advice that gives a user the right.
fn membership(facts: &Facts) -> Advice {
    let name = &facts.caller.name;
    let members = facts.caller.members.as_ref();
    let is_member = members.is_some_and(|members| members.contains(name));
    let is_given = facts.device.group.as_deref() == Some("scif");
    if is_member && is_given {
        return format!(
            "{name} is in the group scif since the last login: log in again, or run: newgrp scif"
        )
        .into();
    }
    let mut commands = Vec::new();
    if members.is_none() {
        commands.push("groupadd --system scif".to_owned());
    }
    if !is_given {
        commands.push("chgrp scif /dev/scif".to_owned());
        commands.push("chmod 660 /dev/scif".to_owned());
    }
    if !is_member {
        commands.push(format!("usermod -aG scif {name}"));
    }
    let text = if is_given {
        "members of the group scif may use the device. Add the user, then log in again"
    } else {
        "install the udev rule of the tools (60-scif.rules), which gives the device to the group scif; until the next \
         boot these commands do the same. Then log in again"
    };
    Advice::by(text, commands)
}

fn pins(facts: &Facts, findings: &mut Findings) {
    let caller = &facts.caller;
    match caller.pins {
        _ if caller.pins_all => (),
        Some(limit) if limit < FEW_PINS => findings.advice(
            "user",
            format!(
                "the user {} may pin {} in all processes together (RLIMIT_MEMLOCK, ulimit -l): registering more fails \
                 with EAGAIN, in SISCI with SCI_ERR_NOSPC",
                caller.name,
                size(limit)
            ),
            Advice::by(
                "raise it for the group scif, from the next login on; services of systemd have LimitMEMLOCK=",
                ["echo '@scif - memlock unlimited' > /etc/security/limits.d/scif.conf".to_owned()],
            ),
        ),
        _ => (),
    }
}
