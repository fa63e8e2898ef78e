//! `tollfree-gateway` from the outside.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The command in a directory, with a place for temporary files in it.
fn gateway(directory: &Path) -> Command {
    let temporary = directory.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollfree-gateway"));
    command.current_dir(directory).env("TMPDIR", temporary).stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn it_says_when_it_is_ready_and_ends_when_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("gateway.toml");
    let socket = directory.path().join("backends.sock");
    let text = format!(
        "[listeners.world]\naddress = \"127.0.0.1:0\"\n[backends]\nsocket = \"shm://{}\"\n",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut child = gateway(directory.path()).arg("--config").arg(&config).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines =
        lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).expect("each line is JSON"));
    let ready = lines.find(|line| line["message"] == "ready").expect("a line that says ready");
    let addresses: Value = serde_json::from_str(ready["addresses"].as_str().unwrap()).unwrap();
    let world = addresses["listeners.world"].as_str().unwrap().strip_prefix("http://").unwrap();
    std::net::TcpStream::connect(world).expect("it listens");
    assert_eq!(addresses["backends"], format!("shm://{}", socket.display()));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(lines.any(|line| line["message"] == "stopped"));
    assert!(child.wait().unwrap().success());
    assert!(!socket.exists(), "its socket is gone");
    assert!(!directory.path().join("backends.sock.control").exists(), "and the one that top asks");
    assert_eq!(directory.path().join("tmp").read_dir().unwrap().count(), 0, "nothing is left behind");
}

/// SIGHUP has it read its config again; one that makes no sense is said, and the old one stays.
#[test]
fn it_reads_its_config_again_when_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("gateway.toml");
    let socket = directory.path().join("backends.sock");
    let write = |limits: &str| {
        let text = format!("[backends]\nsocket = \"shm://{}\"\n[limits]\n{limits}\n", socket.display());
        std::fs::write(&config, text).unwrap();
    };
    write("streams = 5");
    let mut child = gateway(directory.path()).arg("--config").arg(&config).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).expect("JSON"));
    let mut said = |words: &str| {
        lines.find(|line| line["message"].as_str().is_some_and(|said| said.contains(words))).expect("a line")
    };
    said("ready");
    let pid = Pid::from_child(&child);
    write("streams = 0");
    kill_process(pid, Signal::HUP).unwrap();
    let error = said("the old one stays")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("gateway.toml:4: limits.streams"), "{error}");
    write("streams = 6");
    kill_process(pid, Signal::HUP).unwrap();
    assert_eq!(said("was read again")["changed"], "limits.streams: 5 -> 6");
    // Who changes a value by the control socket is named.
    let change = r#"{"name":"limits.streams","value":"8"}"#;
    let mut control =
        std::os::unix::net::UnixStream::connect(directory.path().join("backends.sock.control")).unwrap();
    let head = format!("PUT /registers HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", change.len());
    control.write_all(format!("{head}{change}").as_bytes()).unwrap();
    let who = format!("process {} of user {}", std::process::id(), rustix::process::geteuid().as_raw());
    assert_eq!(said("a register was changed")["who"], who.as_str());
    kill_process(pid, Signal::TERM).unwrap();
    said("stopped");
    assert!(child.wait().unwrap().success());
}

/// The line of the key behind a table that follows a text.
fn socket_line(before: &str) -> usize {
    before.lines().count() + 2
}

#[test]
fn configs_are_checked_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("gateway.toml");
    std::fs::write(&config, "[limits]\nstreams = 5\nstraems = 6\n").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = gateway(directory.path());
        command.args(arguments).arg("--config").arg(&config);
        command.env("TOLLFREE_GATEWAY_LIMITS__CONNECTIONS", "7").output().unwrap()
    };
    let bad = run(&["check"]);
    let words = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(bad.status.code(), Some(2), "{words}");
    assert!(words.contains("gateway.toml:3: limits.straems: there is no such key"), "{words}");
    std::fs::write(&config, "[limits]\nstreams = 5\n").unwrap();
    assert!(run(&["check"]).status.success());
    let shown = run(&["show", "--set", "limits.idle_ms=9", "--effective", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let limits = &shown["limits"];
    assert_eq!([&limits["streams"], &limits["connections"], &limits["idle_ms"]], [5, 7, 9]);
    assert_eq!(limits["header_bytes"], 16384);
    // So are the files that it names.
    let tls = "[listeners.world]\naddress = \"127.0.0.1:0\"\ntls = { certificate = \"gone.pem\", key = \"gone.pem\" }\n";
    let descriptors = "[groups.shop]\ndescriptors = \"gone.binpb\"\n";
    let socket = "[backends]\nsocket = \"shm:///no/such/directory/x.sock\"\n";
    let host = "[metrics]\naddress = \"no-such-host.invalid:1\"\n";
    for (text, said) in [
        (tls, "gateway.toml:3: listeners.world.tls"),
        (descriptors, "gateway.toml:2: groups.shop.descriptors: gone.binpb"),
        (host, "gateway.toml:2: metrics.address: \"no-such-host.invalid:1\" can't be resolved"),
    ] {
        std::fs::write(&config, text).unwrap();
        let bad = run(&["check"]);
        let words = String::from_utf8_lossy(&bad.stderr).into_owned();
        assert_eq!(bad.status.code(), Some(2), "{words}");
        assert!(words.contains(said), "{words}");
    }
    // All at once.
    std::fs::write(&config, format!("{tls}{descriptors}{socket}{host}")).unwrap();
    let words = String::from_utf8_lossy(&run(&["check"]).stderr).into_owned();
    for key in ["listeners.world.tls", "groups.shop.descriptors", "metrics.address"] {
        assert!(words.contains(key), "{words}");
    }
    let line = socket_line(&format!("{tls}{descriptors}"));
    let warning =
        format!("gateway.toml:{line}: backends.socket: the directory /no/such/directory is not there");
    assert!(words.contains(&warning), "{words}");
}

/// A certificate that has expired is an error, one that soon does a warning.
#[test]
fn certificates_that_expire_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("gateway.toml");
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(directory.path().join("key.pem"), key.serialize_pem()).unwrap();
    let text = "backends.socket = \"shm-abstract:x\"\n[listeners.world]\naddress = \"127.0.0.1:0\"\n\
                tls = { certificate = \"cert.pem\", key = \"key.pem\" }\n";
    std::fs::write(&config, text).unwrap();
    let check = |days: i64| {
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let now = std::time::SystemTime::now();
        let at = |days: i64| match days {
            0.. => now + std::time::Duration::from_secs(days as u64 * 86_400),
            _ => now - std::time::Duration::from_secs(days.unsigned_abs() * 86_400),
        };
        (parameters.not_before, parameters.not_after) = (at(-400).into(), at(days).into());
        let certificate = parameters.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("cert.pem"), certificate.pem()).unwrap();
        let done = gateway(directory.path()).arg("check").arg("--config").arg(&config).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, words) = check(-1);
    assert_eq!(status, Some(2), "{words}");
    assert!(
        words.contains(
            "gateway.toml:4: listeners.world.tls.certificate: cert.pem: the certificate has expired"
        ),
        "{words}"
    );
    let (status, words) = check(5);
    assert_eq!(status, Some(0), "{words}");
    assert!(words.contains("warning: ") && words.contains("expires in 4 days"), "{words}");
    assert_eq!(check(100), (Some(0), String::new()));
}

#[test]
fn the_schema_is_printed_and_show_needs_no_flags() {
    let directory = tempfile::tempdir().unwrap();
    let run = |argument: &str| gateway(directory.path()).arg(argument).output().unwrap().stdout;
    let schema: Value = serde_json::from_slice(&run("schema")).unwrap();
    assert_eq!(schema["$defs"]["Limits"]["properties"]["streams"]["default"], 256);
    let shown: Value = serde_json::from_slice(&run("show")).unwrap();
    assert_eq!(shown["limits"]["streams"], 256);
}

#[test]
fn the_help_says_how_to_serve_and_how_to_check() {
    let directory = tempfile::tempdir().unwrap();
    let help = gateway(directory.path()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("tollfree-gateway check") && help.contains("SIGHUP"), "{help}");
}

/// A FIFO in place of a config or of what it names: each command says so and ends, though nobody ever writes to it.
#[test]
fn no_command_waits_for_what_is_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(directory.path().join("odd")).status().unwrap();
    assert!(made.success());
    let config = directory.path().join("gateway.toml");
    let socket = directory.path().join("backends.sock");
    let text = format!(
        "backends.socket = \"shm://{}\"\n[listeners.world]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificate = \"odd\", key = \"odd\" }}\n",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let commands: [(&[&str], &str); 4] = [
        (&["--config", "odd"], "odd"),
        (&["check", "--config", "odd"], "odd"),
        (&["check", "--config", "gateway.toml"], "listeners.world.tls: odd"),
        (&["--config", "gateway.toml"], "listeners.world.tls: odd"),
    ];
    for (arguments, named) in commands {
        let mut child = gateway(directory.path()).args(arguments).spawn().unwrap();
        let began = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() {
            if began.elapsed() > std::time::Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("{arguments:?} waits for a file");
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let ended = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "{words}");
        assert!(words.contains(named) && words.contains("is a FIFO"), "{arguments:?}: {words}");
    }
}
