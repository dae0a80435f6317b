use super::*;

const FROM: &str = "-A FORWARD -i sw+ -m comment --comment \"seaway: from pods\" -j ACCEPT\n";
const TO: &str = "-A FORWARD -o sw+ -m comment --comment \"seaway: to pods\" -j ACCEPT\n";
const REJECT: &str = "-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n";

#[test]
fn a_listing_is_understood() {
    let (accept, drop) = ("-P FORWARD ACCEPT\n", "-P FORWARD DROP\n");
    let other = "-A FORWARD -i docker0 -j ACCEPT\n";
    for (listed, want) in [
        (accept.to_owned(), Forwarding::Free),
        (format!("{accept}{other}"), Forwarding::Free),
        (drop.to_owned(), Forwarding::Dropped),
        (format!("{drop}{FROM}"), Forwarding::Dropped),
        (format!("{drop}{FROM}{TO}"), Forwarding::Accepted),
        (format!("{accept}{REJECT}"), Forwarding::Dropped),
        (format!("{accept}{REJECT}{FROM}{TO}"), Forwarding::Stopped),
        (format!("{accept}{REJECT}{other}"), Forwarding::Stopped),
        (format!("{accept}{other}{REJECT}"), Forwarding::Dropped),
        (format!("{accept}{FROM}{TO}{REJECT}"), Forwarding::Accepted),
    ] {
        assert_eq!(read(&listed).forwarding(), want, "{listed}");
    }
}

#[test]
fn rules_are_named_by_the_numbers_that_iptables_gives_them() {
    let other = "-A FORWARD -i lo -j ACCEPT\n";
    let chain = read(&format!("-P FORWARD ACCEPT\n{other}{FROM}{REJECT}{TO}"));
    assert_eq!(chain.before(), Some(&3));
    assert_eq!(chain.missing(), [COMMENTS[1]]);
    assert_eq!(chain.idle(), [(COMMENTS[1], &4)]);
    let numbers: Vec<usize> = ours(&chain.rules).map(|(_, number)| *number).collect();
    assert_eq!(numbers, [2, 4]);
}

#[test]
fn only_a_rule_without_conditions_ends_the_chain() {
    for (rule, want) in [
        ("-j DROP", Some(Fate::Drop)),
        ("-j REJECT", Some(Fate::Drop)),
        (
            "-j REJECT --reject-with icmp6-adm-prohibited",
            Some(Fate::Drop),
        ),
        ("-j ACCEPT", Some(Fate::Accept)),
        ("-j RETURN", Some(Fate::Policy)),
        ("-m comment --comment end -j DROP", Some(Fate::Drop)),
        (
            "-m comment --comment \"the \\\"end\\\" -j ACCEPT\" -m comment --comment b -j DROP",
            Some(Fate::Drop),
        ),
        ("-m comment --comment \"\\\\\" -j DROP", Some(Fate::Drop)),
        ("-m comment --comment \"all\" -i eth0 -j DROP", None),
        ("-m comment --comment \"never closed -j DROP", None),
        ("-m comment --comment end", None),
        ("-i eth0 -j REJECT", None),
        ("-m limit --limit 1/sec -j DROP", None),
        ("-j DROPPED", None),
        ("-j LOG --log-prefix DROP", None),
        ("-g DROPPED", None),
        ("", None),
    ] {
        assert_eq!(fate(rule), want, "{rule}");
    }
}

/// What somebody does to the rules.
type Meanwhile = fn(&mut Vec<String>);

/// A FORWARD whose policy is to accept, and what somebody does to it after each listing.
struct Fake {
    rules: Vec<String>,
    meanwhile: Vec<Meanwhile>,
}

const LO: &str = "-i lo -j ACCEPT";
const GUARD: &str = "-s 192.0.2.1/32 -j DROP";
const LATER: &str = "-i docker0 -j ACCEPT";
const END: &str = "-j REJECT";
const OURS: [&str; 2] = [
    "-i sw+ -m comment --comment \"seaway: from pods\" -j ACCEPT",
    "-o sw+ -m comment --comment \"seaway: to pods\" -j ACCEPT",
];

impl Fake {
    fn run(&mut self, words: &[String]) -> Result<String, FirewallError> {
        let refused = |why: &str| FirewallError::Legacy {
            program: "iptables",
            why: why.to_owned(),
        };
        let rule = |words: &[String]| {
            let quoted = words.iter().map(|word| {
                if word.contains(' ') {
                    format!("\"{word}\"")
                } else {
                    word.clone()
                }
            });
            quoted.collect::<Vec<String>>().join(" ")
        };
        match words[0].as_str() {
            "-S" => {
                let mut lines = vec!["-P FORWARD ACCEPT".to_owned()];
                let rules = self.rules.iter();
                lines.extend(rules.map(|rule| format!("-A FORWARD {rule}")));
                if let Some(change) = self.meanwhile.pop() {
                    change(&mut self.rules);
                }
                return Ok(lines.join("\n"));
            }
            "-I" => {
                let place = words[2].parse::<usize>().unwrap() - 1;
                if place > self.rules.len() {
                    return Err(refused("Index of insertion too big."));
                }
                self.rules.insert(place, rule(&words[3..]));
            }
            "-D" => {
                let rule = rule(&words[2..]);
                let place = self.rules.iter().position(|other| *other == rule);
                self.rules.remove(place.ok_or_else(|| refused("Bad rule"))?);
            }
            other => panic!("{other}"),
        }
        Ok(String::new())
    }
}

fn fake(meanwhile: Vec<Meanwhile>) -> Fake {
    let rules = [LO, GUARD, END].map(str::to_owned).to_vec();
    Fake { rules, meanwhile }
}

const INSERT: Meanwhile = |rules| rules.insert(0, LATER.to_owned());
const TAKE_FIRST: Meanwhile = |rules| drop(rules.remove(0));
const FLUSH: Meanwhile = Vec::clear;

#[test]
fn accepts_come_before_the_end_also_where_others_change_the_chain_meanwhile() {
    let [from, to] = OURS;
    let cases: [(Vec<Meanwhile>, &[&str]); 4] = [
        (vec![], &[LO, GUARD, from, to, END]),
        (vec![INSERT], &[LATER, LO, GUARD, from, to, END]),
        (vec![TAKE_FIRST], &[GUARD, from, to, END]),
        (vec![FLUSH], &[]),
    ];
    for (meanwhile, want) in cases {
        let mut fake = fake(meanwhile);
        let change = ensure_by(&mut |words| fake.run(words)).unwrap();
        assert_eq!(change, Some(Change::Changed), "{want:?}");
        assert_eq!(fake.rules, want);
        let change = ensure_by(&mut |words| fake.run(words)).unwrap();
        assert_eq!(change, Some(Change::Unchanged), "{want:?}");
    }
}

#[test]
fn accepts_that_never_come_where_they_belong_are_taken_away_again() {
    let mut fake = fake(vec![INSERT; 100]);
    assert_eq!(ensure_by(&mut |words| fake.run(words)).unwrap(), None);
    let left = 100 - fake.meanwhile.len();
    assert_eq!(fake.rules.len(), 3 + left, "{:?}", fake.rules);
    assert!(!fake.rules.iter().any(|rule| OURS.contains(&rule.as_str())));
}

#[test]
fn what_fails_while_nobody_changes_anything_is_told_at_once() {
    let mut fake = fake(Vec::new());
    let mut tried = 0;
    let outcome = ensure_by(&mut |words| {
        if words[0] == "-S" {
            return fake.run(words);
        }
        tried += 1;
        Err(FirewallError::Legacy {
            program: "iptables",
            why: "no".to_owned(),
        })
    });
    assert!(outcome.is_err());
    assert_eq!(tried, 1);
}
