#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seaway_cni::fuzzing::record(bytes));
