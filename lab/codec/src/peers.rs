//! prost's and buffa's rows.

use std::hint::black_box;

use tollfree_bench::schemas;
use tollfree_codec_peers::{Entry, Peer, entries};

use super::measure::Runner;
use super::payload::Payload;

pub(super) const PROST: &str = "prost";
const BUFFA: &str = "buffa";
const BUFFA_VIEW: &str = "buffa, view";

pub(super) fn rows(payload: &Payload) -> Vec<Runner<'_>> {
    match entry(payload) {
        Ok(entry) => [(PROST, entry.prost), (BUFFA, entry.buffa)]
            .into_iter()
            .flat_map(|(side, peer)| peer_rows(side, peer, payload))
            .collect(),
        Err(why) => [
            ("decode", PROST),
            ("encode", PROST),
            ("decode", BUFFA),
            ("encode", BUFFA),
            ("decode", BUFFA_VIEW),
        ]
        .into_iter()
        .map(|(operation, side)| Runner::not_run(operation, side, why.clone()))
        .collect(),
    }
}

/// The generated types of the payload, if it is of a schema that they were generated from.
fn entry(payload: &Payload) -> Result<&'static Entry, String> {
    if !schemas::kept(&payload.schema).is_ok_and(|kept| kept == payload.descriptor_set) {
        return Err(format!("no types were generated for this schema {}", payload.schema));
    }
    entries()
        .find(|entry| entry.schema == payload.schema && entry.type_name == payload.type_name)
        .ok_or_else(|| format!("no types were generated for {}", payload.type_name))
}

fn peer_rows<'p>(side: &'static str, peer: &'static dyn Peer, payload: &'p Payload) -> Vec<Runner<'p>> {
    let input = &payload.bytes;
    let held = match peer.decode(input) {
        Ok(held) => held,
        Err(why) => return vec![Runner::not_run("decode", side, format!("it refuses the message: {why}"))],
    };
    let mut out = Vec::new();
    let mut rows = vec![
        Runner::new("decode", side, move || {
            peer.decode_and_drop(black_box(input)).expect("it decoded before")
        }),
        Runner::new("encode", side, move || {
            black_box(&held).encode(&mut out);
            black_box(&mut out);
        }),
    ];
    if peer.view_and_drop(input).is_ok_and(|has_views| has_views) {
        rows.push(Runner::new("decode", BUFFA_VIEW, move || {
            black_box(peer.view_and_drop(black_box(input)).expect("it decoded before"));
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use tollfree_bench::schemas::SCHEMAS;

    use super::*;

    #[test]
    fn every_schema_has_its_types() {
        for schema in SCHEMAS {
            assert!(entries().any(|entry| entry.schema == schema.name), "{}", schema.name);
        }
        assert_eq!(entries().count(), 61);
    }
}
