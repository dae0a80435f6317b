#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seaway_netlink::fuzzing::reply(bytes));
