//! What of ours the kernel holds, in an order that does not depend on how it has come there.

use seaway_testbed::Netns;

/// What `{program}-save` shows, such as `iptables-nft`: without counters, with their table, by
/// chain.
pub(crate) fn rules(netns: &Netns, program: &str) -> Vec<String> {
    let (dump, mut table) = (netns.must_run(&[format!("{program}-save")]), "");
    let mut rules = Vec::new();
    for line in dump.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if line.contains("SEAWAY-") {
            let chain = line.split(' ').next().filter(|word| word.starts_with(':'));
            rules.push(format!("{program} {table} {}", chain.unwrap_or(line)));
        }
    }
    // Which chain was made first says nothing, nor which of our jumps was put first; which
    // rule of a chain comes first does.
    rules.sort_by_cached_key(|line| {
        let mut words = line.split(' ').skip(1);
        let table = words.next().map(str::to_owned);
        let chain = words.find(|word| *word != "-A").unwrap_or_default();
        let chain = chain.trim_start_matches(':').to_owned();
        let jump = (!chain.starts_with("SEAWAY-")).then(|| line.clone());
        (table, chain, jump)
    });
    rules
}

/// How sets were made, but for the number that each kernel chooses for itself.
pub(crate) fn sets(netns: &Netns) -> Vec<String> {
    let words = ["ipset", "list", "-terse", "-output", "save"];
    let listed = netns.must_run(&words);
    let made = listed.lines().filter(|line| line.starts_with("create "));
    let made = made.map(|line| line.split(" initval ").next().unwrap().to_owned());
    let mut made: Vec<String> = made.collect();
    made.sort();
    made
}

/// Says what differs, of hundreds of lines.
#[track_caller]
pub(crate) fn assert_same(have: &[String], want: &[String], at: &str) {
    let missing: Vec<_> = want.iter().filter(|line| !have.contains(line)).collect();
    let odd: Vec<_> = have.iter().filter(|line| !want.contains(line)).collect();
    let moved = have.iter().zip(want).find(|(have, want)| have != want);
    assert!(
        have == want,
        "{at}: missing {missing:#?}, odd {odd:#?}, first in another place: {moved:#?}"
    );
}
