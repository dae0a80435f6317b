//! Every row holds by the rules alone, and no seeded fault lets all of them hold.

use seaway_proxy_core::desired::Family;

use crate::checks::Checks;

/// What goes wrong, and how the text of the rules looks then.
type Fault = (&'static str, fn(&str) -> String);

const FAULTS: [Fault; 25] = [
    ("the wrong bit asks for masquerade", |text| {
        text.replace("--set-xmark 0x4000/0x4000", "--set-xmark 0x8000/0x8000")
    }),
    ("nobody looks at the mark", |text| {
        lines_without(text, "-A SEAWAY-POSTROUTING -m mark")
    }),
    ("the mark stays", |text| {
        lines_without(text, "-A SEAWAY-MASQUERADE -j MARK")
    }),
    ("masquerade keeps ports", |text| {
        text.replace(" --random-fully", "")
    }),
    ("hairpin is not masqueraded", |text| {
        text.replace("-j SEAWAY-HAIRPIN", "-j RETURN")
    }),
    ("an endpoint is chosen before the mark is set", |text| {
        let mut lines: Vec<&str> = text.lines().collect();
        for at in 1..lines.len() {
            let marks = lines[at - 1].contains("-j MARK --set-xmark");
            if marks && lines[at - 1].starts_with("-A SEAWAY-EXT-") {
                lines.swap(at - 1, at);
            }
        }
        lines.join("\n")
    }),
    ("pods are marked as well", |text| {
        lines_of(text, "-A SEAWAY-MARK-OUTSIDE", |line| {
            !line.contains("-j RETURN")
        })
    }),
    ("policy Local leads to everybody", |text| {
        text.replace("-g SEAWAY-SVL-", "-g SEAWAY-SVC-")
    }),
    ("pods are not spared policy Local", |text| {
        lines_of(text, "-A SEAWAY-EXT-", |line| {
            !(line.contains("-g SEAWAY-SVC-") && (line.contains("-s ") || line.contains("-i ")))
        })
    }),
    ("the node is not spared policy Local", |text| {
        lines_without(text, "-m addrtype --src-type LOCAL -g SEAWAY-SVC-")
    }),
    ("source ranges admit everybody", |text| {
        let through = |line: &str| {
            let (chain, rule) = line.split_once(" -s ").unwrap();
            let (_, rest) = rule.split_once(' ').unwrap();
            format!("{chain} {rest}")
        };
        text.lines()
            .map(|line| {
                let range = line.starts_with("-A SEAWAY-FW-") && line.contains(" -s ");
                if range {
                    through(line)
                } else {
                    line.to_owned()
                }
            })
            .fold(String::new(), |text, line| text + &line + "\n")
    }),
    ("who is in no source range is let through", |text| {
        text.replace(
            "is not for this source\" -m tcp --dport 80 -j DROP",
            "is not for this source\" -m tcp --dport 80 -j ACCEPT",
        )
    }),
    ("a Service without endpoints is not refused", |text| {
        lines_without(text, "-j REJECT")
    }),
    ("it is dropped", |text| {
        text.lines()
            .map(|line| match line.split_once("-j REJECT") {
                Some((rule, _)) => format!("{rule}-j DROP\n"),
                None => format!("{line}\n"),
            })
            .collect()
    }),
    ("what is connected is refused, too", |text| {
        text.replace("-m conntrack --ctstate NEW ", "")
    }),
    ("without a local endpoint somebody else answers", |text| {
        lines_without(text, "has no endpoint on this node")
    }),
    ("the last endpoint is never chosen", |text| {
        text.replace("--probability 0.50000000000", "--probability 1.00000000000")
    }),
    ("endpoints are chosen from the wrong end", |text| {
        text.replace("--probability 0.33333333349", "--probability 0.50000000000")
    }),
    ("nobody asks whether an address serves NodePorts", |text| {
        text.replace("-j SEAWAY-NODE-PORTS", "-j SEAWAY-PORTS")
    }),
    ("NodePorts are served at every address", |text| {
        lines_without(text, "-A SEAWAY-NODE-PORTS -d").replace("-m addrtype --dst-type LOCAL ", "")
    }),
    ("SCTP is taken for TCP", |text| text.replace("sctp", "tcp")),
    ("UDP has TCP's endpoints", |text| {
        text.replace("-p udp", "-p tcp")
    }),
    ("clients are not remembered", |text| {
        lines_without(text, "--add-set")
    }),
    ("clients are remembered for another time", |text| {
        text.replace(" timeout 10800", " timeout 1080")
    }),
    ("what conntrack cannot place goes through", |text| {
        lines_without(text, "--ctstate INVALID")
    }),
];

fn lines_of(text: &str, part: &str, keep: impl Fn(&str) -> bool) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.contains(part) || keep(line));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn lines_without(text: &str, part: &str) -> String {
    lines_of(text, part, |_| false)
}

#[test]
fn every_flow_ends_as_its_row_says_by_the_rules_alone() {
    for family in Family::ALL {
        let checks = Checks::new(family);
        let wrong: Vec<String> = checks.wrong(str::to_owned).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn every_seeded_fault_is_noticed_in_both_families() {
    let mut missed = Vec::new();
    for family in Family::ALL {
        let checks = Checks::new(family);
        for (name, fault) in FAULTS {
            match checks.wrong(fault).next() {
                Some(wrong) => eprintln!("{family}: {name}: {wrong}"),
                None => missed.push(format!("{family}: {name}")),
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
