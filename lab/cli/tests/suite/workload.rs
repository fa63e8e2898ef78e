//! `tollfree-lab workload`, and the figures of `tollfree-lab bench pool` that are made of workloads, from the outside.

use serde_json::Value;

use crate::run::{Scratch, lab};

/// Few calls on all sides.
const SMALL: [&str; 5] = ["--seconds", "0.05", "--rounds", "1", "--json"];
const SIDES: [&str; 4] = ["tonic", "inline", "ref", "ref-copy"];

fn report(scratch: &Scratch, arguments: &[&str]) -> Value {
    let done = lab(scratch).args(arguments).args(SMALL).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{arguments:?}");
    serde_json::from_slice(&done.stdout).expect("standard output is one JSON object")
}

/// The rows, each of which was run; its load generator has checked what the last service read.
fn rows(scratch: &Scratch, arguments: &[&str]) -> Vec<Value> {
    let report = report(scratch, arguments);
    assert_eq!(report["label"], "measured");
    let rows = report["rows"].as_array().unwrap().clone();
    for row in &rows {
        assert_eq!(row["not_run"], Value::Null, "{row}");
        assert!(row["calls"].as_u64().unwrap() >= 1 && row["p50_ns"].as_u64().unwrap() > 0, "{row}");
        assert!(row["all"]["cpu_ns"].as_f64().unwrap() > 0.0, "{row}");
    }
    rows
}

fn field(row: &Value, path: &[&str]) -> f64 {
    let found = path.iter().fold(row, |value, name| &value[name]);
    found.as_f64().unwrap_or_else(|| panic!("no number at {path:?} in {row}"))
}

#[test]
fn a_chain_runs_on_every_side_and_its_slopes_are_told() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, &["workload", "chain", "--length", "1,3", "--size", "20000"]);
    let sides: Vec<&str> = rows.iter().map(|row| row["side"].as_str().unwrap()).collect();
    assert_eq!(sides, [SIDES, SIDES].concat());
    for row in &rows {
        assert_eq!(
            (&row["workload"], &row["size"], &row["inflight"]),
            (&"chain".into(), &20000.into(), &1.into())
        );
        let processes = row["rounds"][0]["processes"].as_array().unwrap();
        assert_eq!(
            processes.len() as u64,
            row["length"].as_u64().unwrap() + 1,
            "hops, and the load generator"
        );
        // Every call reached the last service.
        assert_eq!(processes[0]["requests"], row["calls"], "{row}");
        if row["side"] == "tonic" {
            assert!(field(row, &["all", "sent_bytes"]) >= 20_000.0, "{row}");
            assert_eq!(row["all"]["copied_bytes"], Value::Null);
        } else {
            assert!(field(row, &["all", "sent_bytes"]) < 20_000.0, "{row}");
        }
        assert_eq!(field(row, &["vs_tonic", "p50"]) == 1.0, row["side"] == "tonic", "{row}");
    }
    let saved = scratch.path().join("bench-out").read_dir().unwrap().next().unwrap().unwrap().path();
    let read = |name: &str| std::fs::read_to_string(saved.join(name)).unwrap();
    assert!(read("table.txt").contains("one call more costs ref"), "{}", read("table.txt"));
    assert!(read("plot.svg").ends_with("</svg>\n") && read("plot.svg").contains("ref-copy"));
    let counted: u64 = read("latencies.csv")
        .lines()
        .skip(1)
        .map(|l| l.rsplit(',').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let reported: u64 = rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum();
    assert_eq!(counted, reported, "the raw data hold every call");
}

#[test]
fn an_echo_runs_on_every_side() {
    let arguments = ["workload", "echo", "--size", "64,100000", "--inflight", "3"];
    assert_eq!(rows(&Scratch::new(), &arguments).len(), 8);
    let parked = report(&Scratch::new(), &["workload", "echo", "--size", "64", "--side", "ref", "--park"]);
    assert_eq!((&parked["park"], &parked["rows"][0]["not_run"]), (&true.into(), &Value::Null));
}

#[test]
fn the_image_pipeline_runs_on_every_side_with_a_real_codec() {
    let rows = rows(&Scratch::new(), &["workload", "images", "--size", "4096"]);
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let (all, outside) = (field(row, &["all", "cpu_ns"]), field(row, &["all", "cpu_outside_codec_ns"]));
        assert!(outside > 0.0 && outside < all, "the codec takes some of the time: {row}");
        assert_eq!(row["rounds"][0]["processes"].as_array().unwrap().len(), 7, "seven tiers");
    }
}

#[test]
fn the_social_network_runs_on_every_side() {
    let arguments = ["workload", "social", "--rate", "100", "--media", "5000"];
    for row in rows(&Scratch::new(), &arguments) {
        assert_eq!((&row["rate"], &row["shed"]), (&100.0.into(), &0.into()));
    }
}

#[test]
fn the_hotel_runs_with_a_gateway_and_without_and_tells_the_share_of_useful_work() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, &["workload", "hotel", "--description", "5000", "--inflight", "2"]);
    let sides: Vec<&str> = rows.iter().map(|row| row["side"].as_str().unwrap()).collect();
    assert_eq!(sides, ["tonic", "inline", "gateway", "gateway-objects", "gateway-stream"]);
    for (row, count) in rows.iter().zip([7, 7, 8, 8, 8]) {
        let processes = row["rounds"][0]["processes"].as_array().unwrap();
        assert_eq!(processes.len(), count, "six services, the load generator, and perhaps a gateway");
        let share = field(row, &["useful_share"]);
        assert!((0.0..1.0).contains(&share), "{share}");
        // Nine of ten requests have five nested calls: each request, and each answer of one of these, is an object, once every
        // process has said what it takes. There are few calls here, and the first ones are among them.
        let objects = field(row, &["all", "objects"]);
        let is_right = if row["side"] == "gateway-objects" { objects > 3.0 } else { objects == 0.0 };
        assert!(is_right, "{}: {objects} objects a call", row["side"]);
    }
}

#[test]
fn a_gateway_carries_nothing_but_the_hotel() {
    let scratch = Scratch::new();
    let refused = lab(&scratch).args(["workload", "chain", "--side", "gateway"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("the hotel only"), "{said}");
}

#[test]
fn networking_has_a_share_of_latency_and_of_processor_time_against_load() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, &["figure", "dagger-fig1", "--rate", "500,1000", "--side", "tonic,inline"]);
    let of = |row: &Value| (row["workload"].clone(), row["side"].clone(), row["rate"].as_f64());
    let cases: Vec<_> = rows.iter().map(of).collect();
    assert_eq!(cases.len(), 8, "{cases:?}");
    assert_eq!(cases[0], ("hotel".into(), "tonic".into(), Some(500.0)));
    assert_eq!(cases[7], ("social".into(), "inline".into(), Some(1000.0)));
    for row in &rows {
        let (networking, useful) = (field(row, &["networking_share"]), field(row, &["useful_share"]));
        assert!(networking > 0.0 && networking < 1.0 && useful > 0.0 && useful < 1.0, "{row}");
        // Handlers take no longer than the calls that they are a part of, but for queues of a busy machine.
        assert!(field(row, &["all", "own_ns"]) < field(row, &["mean_ns"]), "{row}");
    }
    let table = saved(&scratch, "table.txt");
    assert!(table.contains("of latency") && table.contains("social network"), "{table}");
    assert!(saved(&scratch, "plot.svg").contains("hotel: networking of mean latency"));
}

#[test]
fn lengths_of_requests_and_replies_are_told_for_each_service() {
    let scratch = Scratch::new();
    assert_eq!(rows(&scratch, &["figure", "dagger-fig2"]).len(), 2);
    let csv = saved(&scratch, "sizes.csv");
    let mut counts = std::collections::BTreeMap::<(&str, &str), u64>::new();
    for line in csv.lines().skip(1) {
        let [workload, _, what, len, count] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert!(len.parse::<u64>().unwrap() < 10_000, "{line}");
        *counts.entry((workload, what)).or_default() += count.parse::<u64>().unwrap();
    }
    let kinds: Vec<_> = counts.keys().copied().collect();
    let both = |workload| [(workload, "reply"), (workload, "request")];
    assert_eq!(kinds, [both("hotel"), both("social network")].concat());
    assert!(
        counts.values().all(|count| *count > 0)
            && counts[&("hotel", "request")] == counts[&("hotel", "reply")]
    );
    // A query has three numbers, and a search's answer some descriptions.
    assert!(csv.contains("hotel,geo-0,request,") && csv.contains("hotel,desk-5,reply,"), "{csv}");
    let table = saved(&scratch, "table.txt");
    assert!(table.contains("≤ 256") && table.contains("requests"), "{table}");
    assert!(saved(&scratch, "plot.svg").contains("messages of at most so many bytes"));
}

/// A file of the only result.
fn saved(scratch: &Scratch, name: &str) -> String {
    let dir = scratch.path().join("bench-out").read_dir().unwrap().next().unwrap().unwrap().path();
    std::fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn figure_6_tells_what_the_balancer_copies() {
    for row in rows(&Scratch::new(), &["figure", "dmrpc-fig6", "--side", "inline,ref"]) {
        let (size, copied) = (field(&row, &["size"]), field(&row, &["movers", "copied_bytes"]));
        let passed = field(&row, &["movers", "ref_bytes"]);
        // Into the balancer, and out of it; by ref, what is around the ref, there and back.
        match row["side"].as_str().unwrap() {
            "inline" => assert!(copied >= 2.0 * size && passed == 0.0, "{row}"),
            _ => assert!(copied < 500.0 && passed == size, "{row}"),
        }
    }
}

#[test]
fn a_hop_goes_by_ref_and_says_that_iceoryx2_is_missing() {
    let scratch = Scratch::new();
    let arguments = ["bench", "pool", "hop", "--rounds", "1", "--count", "3", "--out", "hop", "--json"];
    let done = lab(&scratch).args(arguments).output().unwrap();
    if String::from_utf8_lossy(&done.stderr).contains("needs two cores") {
        eprintln!("not run: both ends spin, which needs two cores");
        return;
    }
    assert!(done.status.success(), "{done:?}");
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let sizes: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| &row["setting"]).collect();
    assert_eq!(sizes, [64 << 10, 256 << 10, 1 << 20]);
    assert_eq!(report["not_run"][0][0], "iceoryx2");
    assert!(scratch.path().join("hop/plot.svg").exists() && scratch.leftovers().is_empty());
}

#[test]
fn users_own_images_are_sent_and_a_directory_without_any_is_a_row_that_says_so() {
    let scratch = Scratch::new();
    let arguments = ["workload", "images", "--side", "inline", "--images", "nothing"];
    std::fs::create_dir(scratch.path().join("nothing")).unwrap();
    let done = lab(&scratch).args(arguments).args(SMALL).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stdout).contains("no JPEG or PNG files"), "{done:?}");
    // An image of one grey pixel.
    let bytes = hex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c63680000008200\
         8177cd72b60000000049454e44ae426082",
    );
    std::fs::write(scratch.path().join("nothing/grey.png"), bytes).unwrap();
    assert_eq!(rows(&scratch, &arguments).len(), 1);
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn bad_arguments_are_answered_in_words_with_status_2() {
    let scratch = Scratch::new();
    for (arguments, words) in [
        (&["workload", "chain", "--side", "pigeon"][..], "there are tonic, inline, ref, ref-copy"),
        (&["workload", "chain", "--length", "0"][..], "a chain of 0 calls"),
        (&["workload", "chain", "--size", "999999999999"][..], "payloads of 999999999999 bytes"),
        (&["workload", "balancer", "--workers", "99"][..], "99 workers"),
        (&["workload", "echo", "--inflight", "0"][..], "0 calls in flight"),
        (&["workload", "images", "--work", "dream"][..], "codec, touch"),
        (&["workload", "images", "--size", "100"][..], "real codec"),
        (&["workload", "social", "--rate=-1"][..], "-1 calls a second"),
        (&["workload", "social", "--rate", "0"][..], "0 calls a second"),
        (&["workload", "echo", "--rounds", "0"][..], "rounds"),
        (&["workload", "echo", "--seconds", "0"][..], "seconds"),
        (&["bench", "pool", "fig5"][..], "hop, micro"),
        (&["figure", "dmrpc-fig5", "--seconds", "0"][..], "seconds"),
        (&["figure", "dmrpc-fig10", "--side", "pigeon"][..], "no such side"),
        (&["figure", "dmrpc-fig11", "--rounds", "0"][..], "rounds"),
        (&["figure", "dmrpc-fig5", "--count", "3"][..], "unexpected argument"),
        (&["figure", "dagger-fig1", "--side", "gateway"][..], "the hotel only"),
        (&["figure", "dagger-fig1", "--rate", "0"][..], "0 calls a second"),
        (&["figure", "dagger-fig2", "--seconds", "0"][..], "seconds"),
        (&["figure", "dmrpc-fig7", "--side", "ref"][..], "unexpected argument"),
    ] {
        let done = lab(&scratch).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said:?} lacks {words:?}");
        assert!(done.stdout.is_empty());
    }
}
