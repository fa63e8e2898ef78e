#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollfree_fuzzing::builder(data));
