//! h2spec against plain tonic, our server and a gateway, case by case: what plain tonic passes, the others must pass.

use std::path::{Path, PathBuf};

use crate::table::{heading, row};
use crate::{Error, foreign};

/// What each column is about; the first is what the others are compared with.
pub(crate) const SERVERS: [&str; 3] = ["plain tonic server", "Tollfree server", "gateway"];

/// Streams that plain tonic lets a client have at once: as many as a gateway does that nobody has configured.
pub(crate) const STREAM_COUNT: u32 = 256;

/// As many cases as the pinned version has.
const CASE_COUNT: usize = 145;

/// Cases whose end says nothing of a server, and why. The document repeats it.
const NOT_COMPARED: &[(&str, &str)] = &[(
    "http2/5.1.2/1",
    "h2spec's requests are no calls of gRPC, and are answered at once: whether more than the limit are ever open at the \
     same time is chance, and without a limit, as at our own server, the case is skipped. That the gateway's limit holds \
     is shown with calls that stay open, by `streams_beyond_the_limit_are_refused` in \
     `crates/gateway/tests/suite/world/floods.rs`",
)];

/// Seconds that h2spec waits for a frame: usually, and when a case is tried again because servers differ in it.
const WAITS: [u32; 2] = [2, 10];

/// A case in which servers differ is tried again so often.
const ATTEMPT_COUNT: usize = 3;

/// How a case went with one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// h2spec found that the case makes no sense with this server.
    Skipped,
    /// One of [`NOT_COMPARED`].
    NotCompared,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
            Verdict::NotCompared => "not compared",
        }
    }
}

/// One case by one server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    /// By which h2spec runs it alone, such as `http2/5.1.2/1`.
    id: String,
    title: String,
    verdict: Verdict,
}

/// One case by all of [`SERVERS`].
#[derive(Clone, Debug)]
pub(crate) struct Case {
    id: String,
    title: String,
    verdicts: [Verdict; SERVERS.len()],
}

impl Case {
    fn has(&self, verdict: Verdict) -> bool {
        self.verdicts.contains(&verdict)
    }
}

/// h2spec, and where its reports go.
struct Runner<'a> {
    program: &'a Path,
    directory: &'a Path,
}

impl Runner<'_> {
    /// All cases, or the one with an id.
    async fn run(&self, port: u16, wait: u32, id: Option<&str>) -> Result<Vec<Outcome>, Error> {
        let report: PathBuf = self.directory.join(format!("h2spec-{port}.xml"));
        let mut args = vec![
            "--host=127.0.0.1".to_owned(),
            format!("--port={port}"),
            format!("--timeout={wait}"),
            format!("--junit-report={}", report.display()),
        ];
        args.extend(id.map(str::to_owned));
        let said = foreign::run(self.program, args).await?;
        // Failed cases make it 1 as well.
        if !matches!(said.code, Some(0 | 1)) {
            return Err(format!("h2spec: {}", said.final_status()).into());
        }
        let text = std::fs::read_to_string(&report)
            .map_err(|error| format!("h2spec made no report ({error}): {}", said.final_status()))?;
        std::fs::remove_file(&report)?;
        parse(&text)
    }
}

fn parse(report: &str) -> Result<Vec<Outcome>, Error> {
    let document = roxmltree::Document::parse(report)?;
    let mut results = Vec::new();
    for suite in document.descendants().filter(|node| node.has_tag_name("testsuite")) {
        let cases = suite.children().filter(|node| node.has_tag_name("testcase"));
        for (idx, case) in cases.enumerate() {
            let attribute = |name| {
                case.attribute(name).ok_or_else(|| format!("h2spec's report has a case without {name}"))
            };
            let ended = |name| case.children().any(|node| node.has_tag_name(name));
            let verdict = if ended("error") || ended("failure") {
                Verdict::Failed
            } else if ended("skipped") {
                Verdict::Skipped
            } else {
                Verdict::Passed
            };
            let id = format!("{}/{}", attribute("package")?, idx + 1);
            results.push(Outcome { id, title: attribute("classname")?.to_owned(), verdict });
        }
    }
    Ok(results)
}

/// Puts the servers' results beside each other.
fn join(results: &[Vec<Outcome>; SERVERS.len()]) -> Result<Vec<Case>, Error> {
    let [first, rest @ ..] = results;
    let same = |other: &Vec<Outcome>| {
        other.len() == first.len() && other.iter().zip(first).all(|(a, b)| a.id == b.id)
    };
    if !rest.iter().all(same) {
        return Err("h2spec ran other cases with one server than with another".into());
    }
    let case = |(idx, result): (usize, &Outcome)| {
        let compared = NOT_COMPARED.iter().all(|(id, _)| *id != result.id);
        let verdict = |server: usize| match compared {
            true => results[server][idx].verdict,
            false => Verdict::NotCompared,
        };
        Case { id: result.id.clone(), title: result.title.clone(), verdicts: std::array::from_fn(verdict) }
    };
    Ok(first.iter().enumerate().map(case).collect())
}

/// Runs all cases with all servers, at the same time, and again what failed: h2spec waits by the clock.
pub(crate) async fn run(
    program: &Path,
    directory: &Path,
    ports: [u16; SERVERS.len()],
) -> Result<Vec<Case>, Error> {
    let runner = Runner { program, directory };
    let all = |server: usize| runner.run(ports[server], WAITS[0], None);
    let (tonic, ours, gateway) = tokio::try_join!(all(0), all(1), all(2))?;
    let mut cases = join(&[tonic, ours, gateway])?;
    for case in &mut cases {
        for attempt in 0..ATTEMPT_COUNT {
            let is_mixed = case.has(Verdict::Passed) && case.has(Verdict::Failed);
            if is_mixed || (attempt == 0 && case.has(Verdict::Failed)) {
                again(&runner, ports, case, WAITS[usize::from(is_mixed)]).await?;
            }
        }
    }
    for (server, name) in SERVERS.iter().enumerate() {
        println!("  {:<56} {}", format!("h2spec: {name}"), counts(&cases, server));
    }
    Ok(cases)
}

/// Tries a case again with the servers that failed it.
async fn again(
    runner: &Runner<'_>,
    ports: [u16; SERVERS.len()],
    case: &mut Case,
    wait: u32,
) -> Result<(), Error> {
    let failed = (0..SERVERS.len()).filter(|&server| case.verdicts[server] == Verdict::Failed);
    let id = &case.id;
    let attempts = failed.map(|server| async move {
        let results = runner.run(ports[server], wait, Some(id)).await?;
        let [result] = &results[..] else {
            return Err(format!("h2spec has {} cases {id}, not one", results.len()).into());
        };
        Ok::<_, Error>((server, result.verdict))
    });
    for (server, verdict) in futures_util::future::try_join_all(attempts).await? {
        if verdict != Verdict::Failed {
            println!("  h2spec: {id}, tried again with the {}: {}", SERVERS[server], verdict.word());
        }
        case.verdicts[server] = verdict;
    }
    Ok(())
}

fn counts(cases: &[Case], server: usize) -> String {
    let count = |verdict| cases.iter().filter(|case| case.verdicts[server] == verdict).count();
    let [passed, failed, skipped] = [Verdict::Passed, Verdict::Failed, Verdict::Skipped].map(count);
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

/// What plain tonic passes and another doesn't.
pub(crate) fn failures(cases: &[Case]) -> Vec<String> {
    let mut failures = worse(cases);
    if cases.len() != CASE_COUNT {
        failures.push(format!("h2spec: {} cases were run, not {CASE_COUNT}", cases.len()));
    }
    for (id, _) in NOT_COMPARED {
        if cases.iter().all(|case| case.id != *id) {
            failures.push(format!("h2spec: there is no case {id}, which is said not to be compared"));
        }
    }
    failures
}

fn worse(cases: &[Case]) -> Vec<String> {
    let is_worse = |case: &Case, server: usize| {
        case.verdicts[0] == Verdict::Passed && case.verdicts[server] == Verdict::Failed
    };
    let mut failures = Vec::new();
    for case in cases {
        for server in (1..SERVERS.len()).filter(|&server| is_worse(case, server)) {
            let Case { id, title, .. } = case;
            failures.push(format!(
                "h2spec, {id} ({title}): {} passes it, {} does not",
                SERVERS[0], SERVERS[server]
            ));
        }
    }
    failures
}

/// How many cases went how, and those that some server doesn't pass.
pub(crate) fn render(text: &mut String, cases: &[Case]) {
    let titles = |first: &[&str]| first.iter().chain(&SERVERS).map(|&title| title.to_owned()).collect();
    heading(text, titles(&["h2spec", ""]));
    let all = (0..SERVERS.len()).map(|server| counts(cases, server));
    row(text, ["all".to_owned(), format!("{} cases", cases.len())].into_iter().chain(all));
    for case in cases.iter().filter(|case| case.verdicts.iter().any(|verdict| *verdict != Verdict::Passed)) {
        let named = [format!("`{}`", case.id), case.title.clone()];
        row(text, named.into_iter().chain(case.verdicts.map(|verdict| verdict.word().to_owned())));
    }
    for (id, why) in NOT_COMPARED {
        text.push_str(&format!("\n`{id}` is not compared: {why}.\n"));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?><testsuites>
        <testsuite name="2. Streams" package="generic/2" id="2" tests="2" skipped="0" failures="0" errors="1">
        <testcase package="generic/2" classname="Sends &#34;a&#34;" time="0.0006"></testcase>
        <testcase package="generic/2" classname="Sends b" time="3.0017"><error>DATA frame</error></testcase>
        </testsuite>
        <testsuite name="6.5.3" package="http2/6.5.3" id="6.5.3" tests="1" skipped="1" failures="0" errors="0">
        <testcase package="http2/6.5.3" classname="Sends c" time="0.1"><skipped></skipped></testcase>
        </testsuite></testsuites>"#;

    #[test]
    fn a_report_is_read() {
        let results = parse(REPORT).unwrap();
        let read: Vec<_> = results.iter().map(|r| (&*r.id, &*r.title, r.verdict)).collect();
        let expected = [
            ("generic/2/1", "Sends \"a\"", Verdict::Passed),
            ("generic/2/2", "Sends b", Verdict::Failed),
            ("http2/6.5.3/1", "Sends c", Verdict::Skipped),
        ];
        assert_eq!(read, expected);
        assert!(parse("<testsuites><testsuite>").is_err());
        assert!(parse("<testsuites><testsuite><testcase/></testsuite></testsuites>").is_err());
        let results = results.as_slice();
        join(&[results.to_vec(), results.to_vec(), results[..2].to_vec()]).unwrap_err();
        assert_eq!(join(&[0; 3].map(|_| results.to_vec())).unwrap().len(), 3);
    }

    #[test]
    fn what_is_worse_than_plain_tonic_is_found() {
        use Verdict::{Failed, Passed, Skipped};
        let case = |verdicts| Case { id: "a/1".to_owned(), title: "Sends a".to_owned(), verdicts };
        for fine in [[Passed; 3], [Failed; 3], [Failed, Passed, Passed], [Passed, Skipped, Passed]] {
            assert!(worse(&[case(fine)]).is_empty(), "{fine:?}");
        }
        for (verdicts, server) in
            [([Passed, Failed, Passed], "Tollfree server"), ([Passed, Passed, Failed], "gateway")]
        {
            let found = worse(&[case(verdicts)]);
            assert!(matches!(&found[..], [one] if one.contains(server) && one.contains("a/1")), "{found:?}");
        }
        assert!(failures(&[])[0].contains("0 cases"), "a run of nothing is no success");
        let failed = Outcome { id: NOT_COMPARED[0].0.to_owned(), title: String::new(), verdict: Failed };
        let passed = Outcome { verdict: Passed, ..failed.clone() };
        let joined = join(&[vec![passed.clone()], vec![passed], vec![failed]]).unwrap();
        assert_eq!((joined[0].verdicts, worse(&joined).len()), ([Verdict::NotCompared; 3], 0));
    }
}
