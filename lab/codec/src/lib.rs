//! `tollfree-lab bench codec`: what decoding, encoding, verifying and reading a message costs, beside other libraries.
//!
//! Everything runs on one thread of one process (C++ in a process of its own, asked over a pipe), warm: the same
//! message again and again, buffers and arenas used again where the library allows it. All rows of a payload run
//! once in each round, so that a noisy minute hits all of them; a figure is the median of the rounds. A copy's time
//! depends on where in their pages its two sides lie, so the rounds are shared out among several *seats*: everything
//! is made anew at other addresses for each.
#![forbid(unsafe_code)]

mod cpp;
mod everyday;
mod known;
mod measure;
mod ours;
mod payload;
mod peers;
mod plot;
pub mod report;
mod strict;
mod thrift;
mod thrift_peer;
mod uid;

use std::path::PathBuf;

use tollfree_bench::BenchError;
use tollfree_bench::harness::{Lasting, Told, refuse};

use measure::Runner;
use payload::Payload;
pub use report::CodecReport;
pub use uid::{offload_costs, ring_plan};

/// Everyday messages, of a schema that another part keeps.
#[allow(dead_code, unreachable_pub, reason = "generated code")]
mod shop {
    include!(concat!(env!("OUT_DIR"), "/shop.rs"));
}

/// Views and builders of the same.
#[allow(dead_code, unreachable_pub, reason = "generated code")]
mod views {
    include!(concat!(env!("OUT_DIR"), "/views.rs"));
}

/// What `tollfree-lab bench codec` is asked to do.
#[derive(Debug, Clone)]
pub struct CodecPlan {
    /// Directory of a corpus, HyperProtoBench-like or of Thrift messages, or of several; look-alikes are generated if there is
    /// none.
    pub corpus: Option<PathBuf>,
    /// Only payloads whose name begins with one of these; all if there are none.
    pub only: Vec<String>,
    /// How long and how often.
    pub lasting: Lasting,
    /// Where `make bench-peers` has put the C++ programs.
    pub cpp_dir: PathBuf,
    /// Seed of the look-alikes.
    pub seed: u64,
}

/// Measures all rows of all payloads.
///
/// # Errors
/// [`BenchError::Refused`] if the plan is not possible or the corpus cannot be read. A row that cannot run is no
/// error: it says why.
pub fn run(plan: &CodecPlan, mut progress: impl FnMut(&Told)) -> Result<CodecReport, BenchError> {
    plan.lasting.check()?;
    let (mut protobuf, mut thrift) = (Vec::new(), Vec::new());
    match &plan.corpus {
        Some(dir) => {
            for place in payload::places(dir)? {
                protobuf.extend(payload::from_corpus(&place)?);
                thrift.extend(thrift::from_corpus(&place)?);
            }
            if protobuf.is_empty() && thrift.is_empty() {
                let words = "holds neither <schema>.fds.binpb nor compact/ and binary/ with Thrift messages";
                return refuse(format!("{} {words}", dir.display()));
            }
        }
        None => {
            protobuf = payload::lookalikes(plan.seed);
            thrift = thrift::lookalikes(plan.seed);
        }
    }
    let wanted =
        |name: &str| plan.only.is_empty() || plan.only.iter().any(|start| name.starts_with(start.as_str()));
    protobuf.retain(|payload| wanted(&payload.name));
    thrift.retain(|payload| wanted(&payload.name));
    let mut everyday = everyday::PAYLOADS.to_vec();
    everyday.retain(|payload| wanted(payload.name));
    let total = protobuf.len() + thrift.len() + everyday.len();
    if total == 0 {
        return refuse("no payload has such a name");
    }
    let mut groups = Vec::with_capacity(total);
    let mut add = |group: report::Group| {
        let line = format!("{:>3} of {total} · {}", groups.len() + 1, group.payload);
        progress(&Told { line, is_failure: false });
        groups.push(group);
    };
    for payload in &protobuf {
        add(measure(plan, payload)?);
    }
    for payload in &thrift {
        add(thrift::group(plan, payload)?);
    }
    for payload in &everyday {
        add(payload.group(plan)?);
    }
    Ok(CodecReport::new(plan, groups))
}

/// Seats of each payload, if there are as many rounds.
const SEATS: usize = 5;

/// Measures in `run`, which is told how many rounds, at each seat; the rows' rounds come one behind the other.
fn at_each_seat(
    rounds: usize,
    mut run: impl FnMut(usize) -> Result<report::Group, BenchError>,
) -> Result<report::Group, BenchError> {
    let seats = SEATS.min(rounds);
    let mut all: Option<report::Group> = None;
    for seat in 0..seats {
        // What is allocated behind it begins elsewhere in its page; an odd number of cache lines, and some bytes.
        let shift = vec![0u8; seat * 13 * 64 + seat * 16];
        let group = run((rounds + seats - 1 - seat) / seats)?;
        drop(std::hint::black_box(shift));
        match &mut all {
            None => all = Some(group),
            Some(all) => all.append(group),
        }
    }
    all.ok_or_else(|| BenchError::Refused("no round was asked for".to_owned()))
}

fn measure(plan: &CodecPlan, payload: &Payload) -> Result<report::Group, BenchError> {
    at_each_seat(plan.lasting.rounds, |rounds| {
        // Its bytes, too, lie elsewhere at each.
        measure_at(plan, rounds, &payload.clone())
    })
}

fn measure_at(plan: &CodecPlan, rounds: usize, payload: &Payload) -> Result<report::Group, BenchError> {
    let ours = ours::Ours::new(payload)?;
    let strict = strict::strict(&payload.descriptor_set).map(|set| ours::Ours::with_schema(payload, &set));
    let mut rows: Vec<Runner<'_>> = vec![measure::memcpy(&payload.bytes)];
    rows.extend(ours.rows());
    rows.push(match &strict {
        Ok(Ok(strict)) => strict.decode("tollfree, UTF-8 checked"),
        Ok(Err(error)) => Runner::not_run("decode", "tollfree, UTF-8 checked", error.to_string()),
        Err(why) => Runner::not_run("decode", "tollfree, UTF-8 checked", why.clone()),
    });
    rows.extend(peers::rows(payload));
    rows.extend(cpp::rows(&plan.cpp_dir, payload));
    Ok(report::Group {
        payload: payload.name.clone(),
        bytes: payload.bytes.len(),
        fields: ours.field_count(),
        object_len: ours.object_len(),
        baseline: peers::PROST,
        rows: measure::interleaved(rows, rounds, plan.lasting.measure()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_bench::harness::Report;

    fn plan() -> CodecPlan {
        CodecPlan {
            corpus: None,
            only: Vec::new(),
            lasting: Lasting { rounds: 1, seconds: 1e-6 },
            cpp_dir: PathBuf::from("/nonexistent"),
            seed: 1,
        }
    }

    #[test]
    fn every_lookalike_runs_in_every_engine() {
        let mut steps = 0;
        let report = run(&plan(), |_| steps += 1).unwrap();
        assert_eq!(report.groups.len(), steps);
        assert_eq!(steps, 82);
        for group in &report.groups {
            for row in &group.rows {
                let may_miss = row.side.starts_with("C++") || row.side == "tollfree, UTF-8 checked";
                assert!(row.ns.is_some() || may_miss, "{} {row:?}", group.payload);
            }
            let cpp = group.rows.iter().any(|row| row.side.starts_with("C++") && row.not_run.is_some());
            let everyday = group.payload.starts_with("shop/");
            assert_eq!(cpp, group.baseline == "prost" && !everyday);
            for operation in ["copy-verify-read", "builder", "decode-read-encode"] {
                let row = group.rows.iter().find(|row| row.operation == operation && row.side == "tollfree");
                let compared = row.is_some_and(|row| row.vs_baseline.is_some());
                assert_eq!(compared, everyday, "{} {operation}", group.payload);
            }
            for operation in ["decode", "encode"] {
                let compared = |side: &str| {
                    let mut rows = group.rows.iter().filter(|row| row.operation == operation);
                    rows.find(|row| row.side == side).is_some_and(|row| row.vs_baseline.is_some())
                };
                assert!(compared("tollfree") && compared(group.baseline), "{}", group.payload);
            }
        }
        assert!(report.table().contains("not run: "));
    }

    #[test]
    fn the_same_seed_gives_the_same_messages() {
        let bytes = |seed| -> Vec<Vec<u8>> {
            payload::lookalikes(seed).into_iter().map(|payload| payload.bytes).collect()
        };
        assert_eq!(bytes(7), bytes(7));
        assert_ne!(bytes(7), bytes(8));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            CodecPlan { lasting: Lasting { rounds: 0, seconds: 1.0 }, ..plan() },
            CodecPlan { only: vec!["nothing".to_owned()], ..plan() },
            CodecPlan { corpus: Some(PathBuf::from("/nonexistent")), ..plan() },
        ] {
            assert!(matches!(run(&bad, |_| ()), Err(BenchError::Refused(_))));
        }
    }
}
