//! The access log from outside, and the metrics by group and process.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollfree_stubs::probe::{Ask, Fault};
use tonic::{Code, Request};

use super::lab::{Lab, PATIENCE};
use super::reload::reload;

/// The lines of a file, as soon as there are so many.
async fn lines(file: &Path, count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(began.elapsed() < PATIENCE, "{} of {count} lines: {lines:?}", lines.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn start(more: &str) -> (Lab, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.log");
    let text = format!("access_log.path = \"{}\"\n{more}", file.display());
    (Lab::start_in(directory, &text).await, file)
}

#[tokio::test]
async fn each_call_has_a_line_that_says_what_became_of_it() {
    let (lab, file) = start("limits.attach_wait_ms = 1\n").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let mut request = Request::new(Ask { body: vec![1; 1000], ..Ask::default() });
    request
        .metadata_mut()
        .insert("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    client.unary(request).await.unwrap();
    let fault = Some(Fault { code: Code::Aborted as i32, ..Fault::default() });
    client.unary(Ask { fault: fault.clone(), ..Ask::default() }).await.unwrap_err();
    let mut down =
        client.down(Ask { lens: vec![10, 20], fault, ..Ask::default() }).await.unwrap().into_inner();
    while let Ok(Some(_)) = down.message().await {}
    let gone = tonic_health::pb::health_client::HealthClient::new(lab.channel().await);
    gone.clone().check(tonic_health::pb::HealthCheckRequest { service: "x.None".into() }).await.unwrap_err();
    let mut other = tollfree_stubs::probe::probe_client::ProbeClient::new(lab.channel().await);
    let mut held = Request::new(Ask { wait_ms: 1000, ..Ask::default() });
    held.metadata_mut().insert("grpc-timeout", "1m".parse().unwrap());
    other.unary(held).await.unwrap_err();

    let mut said: Vec<Value> =
        lines(&file, 5).await.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    // The client looks at the deadline, too, and may cancel first.
    let is_late = |line: &Value| line["status"] == "DEADLINE_EXCEEDED" || line["status"] == "CANCELLED";
    let late = said.iter().position(is_late).expect("one was late");
    said.remove(late);
    let statuses: Vec<_> = said.iter().map(|line| line["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["OK", "ABORTED", "ABORTED", "NOT_FOUND"]);
    let backend = format!("{}/0", std::process::id());
    for line in &said[..3] {
        assert_eq!(
            (&line["group"], &line["backend"]),
            (&"default".into(), &backend.as_str().into()),
            "{line}"
        );
        assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line["user_agent"].as_str().unwrap().contains("tonic"), "{line}");
        assert!(
            line["duration_ms"].as_f64().unwrap() > 0.0 && line["time"].as_str().unwrap().ends_with('Z'),
            "{line}"
        );
    }
    assert_eq!(said[0]["method"], "tollfree.probe.v1.Probe/Unary");
    assert!(
        said[0]["request_bytes"].as_u64().unwrap() > 1000 && said[0]["answer_bytes"].as_u64().unwrap() > 1000
    );
    assert!(said[0]["trace"].as_str().unwrap().contains("0af7651916cd43dd8448eb211c80319c"), "{}", said[0]);
    assert!(said[2]["answer_bytes"].as_u64().unwrap() >= 30, "{}", said[2]);
    assert_eq!((&said[3]["method"], &said[3]["group"]), (&"grpc.health.v1.Health/Check".into(), &"".into()));

    let page = lab.page().await;
    for line in [
        "tollfree_gateway_calls_total{group=\"default\",status=\"OK\"} 1",
        "tollfree_gateway_calls_total{group=\"default\",status=\"ABORTED\"} 2",
        "tollfree_gateway_access_log_lines_left_out_total 0",
        concat!("tollfree_gateway_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(page.lines().any(|is| is == line), "{line} is not in {page}");
    }
    assert!(
        page.contains(&format!(
            "tollfree_gateway_backend_calls_total{{group=\"default\",backend=\"{backend}\""
        )),
        "{page}"
    );
    for name in [
        "tollfree_gateway_call_seconds_count{group=\"default\"}",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_threads",
    ] {
        assert!(lab.figure(name).await > 0.0, "{name}");
    }
}

#[tokio::test]
async fn a_template_and_a_share_shape_the_log_and_a_reload_opens_its_file_anew() {
    let shape = "access_log.ratio = 0.5\naccess_log.template = \"{status} {group} {method}\"\n";
    let (lab, file) = start(shape).await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    for _ in 0..10 {
        client.unary(Ask::default()).await.unwrap();
    }
    let fault = Some(Fault { code: Code::Aborted as i32, ..Fault::default() });
    client.unary(Ask { fault: fault.clone(), ..Ask::default() }).await.unwrap_err();
    let first = lines(&file, 6).await;
    assert_eq!(first.len(), 6, "{first:?}");
    assert_eq!(
        (&*first[0], &*first[5]),
        ("OK default tollfree.probe.v1.Probe/Unary", "ABORTED default tollfree.probe.v1.Probe/Unary")
    );
    std::fs::rename(&file, file.with_extension("old")).unwrap();
    let same = format!("access_log.path = \"{}\"\n{shape}", file.display());
    assert!(reload(&lab, &same).await.unwrap().is_empty());
    client.unary(Ask { fault, ..Ask::default() }).await.unwrap_err();
    assert_eq!(lines(&file, 1).await.len(), 1, "in a new file");
    assert_eq!(reload(&lab, "").await.unwrap(), ["access_log"], "it changes with a restart only");
}
