//! `tollfree shepherd` from the outside.

mod run;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use run::{Scratch, tollfree};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn it_says_when_it_is_ready_and_ends_when_it_is_told() {
    let scratch = Scratch::new();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("shepherd.toml");
    let socket = directory.path().join("business.sock");
    let text = format!(
        "[listeners.world]\naddress = \"127.0.0.1:0\"\n[business]\nsocket = \"shm://{}\"\n",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = tollfree(&scratch);
    let mut child =
        command.arg("shepherd").arg("--config").arg(&config).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines =
        lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).expect("each line is JSON"));
    let ready = lines.find(|line| line["message"] == "ready").expect("a line that says ready");
    let addresses: Value = serde_json::from_str(ready["addresses"].as_str().unwrap()).unwrap();
    let world = addresses["listeners.world"].as_str().unwrap().strip_prefix("http://").unwrap();
    std::net::TcpStream::connect(world).expect("it listens");
    top_looks_at_it(&scratch, addresses["business"].as_str().unwrap(), child.id());
    ctl_changes_it(&scratch, addresses["business"].as_str().unwrap());
    assert_eq!(addresses["business"], format!("shm://{}", socket.display()));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(lines.any(|line| line["message"] == "stopped"));
    assert!(child.wait().unwrap().success());
    assert!(!socket.exists(), "its socket is gone");
    assert!(!directory.path().join("business.sock.control").exists(), "and the one that top asks");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// SIGHUP has it read its config again; one that makes no sense is said, and the old one stays.
#[test]
fn it_reads_its_config_again_when_it_is_told() {
    let scratch = Scratch::new();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("shepherd.toml");
    let socket = directory.path().join("business.sock");
    let write = |limits: &str| {
        let text = format!("[business]\nsocket = \"shm://{}\"\n[limits]\n{limits}\n", socket.display());
        std::fs::write(&config, text).unwrap();
    };
    write("streams = 5");
    let mut command = tollfree(&scratch);
    let mut child =
        command.arg("shepherd").arg("--config").arg(&config).stderr(Stdio::piped()).spawn().unwrap();
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
    assert!(error.contains("shepherd.toml:4: limits.streams"), "{error}");
    write("streams = 6");
    kill_process(pid, Signal::HUP).unwrap();
    said("was read again");
    kill_process(pid, Signal::TERM).unwrap();
    said("stopped");
    assert!(child.wait().unwrap().success());
}

#[test]
fn configs_are_checked_and_shown() {
    let scratch = Scratch::new();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("shepherd.toml");
    std::fs::write(&config, "[limits]\nstreams = 5\nstraems = 6\n").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = tollfree(&scratch);
        command.args(["shepherd", "config"]).args(arguments).arg("--config").arg(&config);
        command.env("TOLLFREE_SHEPHERD_LIMITS__CONNECTIONS", "7").output().unwrap()
    };
    let bad = run(&["check"]);
    let words = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(bad.status.code(), Some(2), "{words}");
    assert!(words.contains("shepherd.toml:3: limits.straems: there is no such key"), "{words}");
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
    for (text, said) in [(tls, "listeners.world.tls"), (descriptors, "groups.shop.descriptors: gone.binpb")] {
        std::fs::write(&config, text).unwrap();
        let bad = run(&["check"]);
        let words = String::from_utf8_lossy(&bad.stderr).into_owned();
        assert_eq!(bad.status.code(), Some(2), "{words}");
        assert!(words.contains(said), "{words}");
    }
}

/// A FIFO in place of a config, of what it names, or of a codec's descriptor set: each command says so and ends, though nobody ever writes to it.
#[test]
fn no_command_waits_for_what_is_no_file() {
    let scratch = Scratch::new();
    let fifo = scratch.path().join("odd");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let config = scratch.path().join("shepherd.toml");
    let socket = scratch.path().join("business.sock");
    let text = format!(
        "business.socket = \"shm://{}\"\n[listeners.world]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificate = \"odd\", key = \"odd\" }}\n",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let commands: [(&[&str], &str); 5] = [
        (&["shepherd", "--config", "odd"], "odd"),
        (&["shepherd", "config", "check", "--config", "odd"], "odd"),
        (&["shepherd", "config", "check", "--config", "shepherd.toml"], "listeners.world.tls: odd"),
        (&["shepherd", "--config", "shepherd.toml"], "listeners.world.tls: odd"),
        (&["codec", "decode", "--descriptor-set", "odd", "--type", "a.B"], "the descriptor set odd"),
    ];
    for (arguments, named) in commands {
        let mut child = tollfree(&scratch).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
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

fn top_looks_at_it(scratch: &Scratch, socket: &str, pid: u32) {
    let top = |arguments: &[&str]| {
        tollfree(scratch).args(["top", socket, "--interval", "0.05"]).args(arguments).output().unwrap()
    };
    let shown = top(&["--once", "--json"]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["pid"], pid);
    assert!(
        shown["interval_ms"].as_u64().unwrap() >= 50 && shown["groups"] == Value::Array(vec![]),
        "{shown}"
    );
    let words = String::from_utf8(top(&["--once"]).stdout).unwrap();
    assert!(
        words.starts_with(&format!("shepherd {pid}, up ")) && words.contains("nothing was refused"),
        "{words}"
    );
    let live = top(&[]);
    assert_eq!(live.status.code(), Some(2), "there is no terminal");
    assert!(String::from_utf8_lossy(&live.stderr).contains("add --once"));
    let other = tollfree(scratch).args(["top", "shm:///run/no/such.sock", "--once"]).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    let words = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(words.contains("no shepherd answers at /run/no/such.sock.control"), "{words}");
}

fn ctl_changes_it(scratch: &Scratch, socket: &str) {
    let ctl = |arguments: &[&str]| {
        let output = tollfree(scratch).args(["ctl", "--socket", socket]).args(arguments).output().unwrap();
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), words(&output.stdout), words(&output.stderr))
    };
    let get = |name: &str| ctl(&["get", name]).1;
    assert_eq!(get("steering.policy"), "least_outstanding\n");
    assert_eq!(ctl(&["set", "steering.policy", "affinity"]).1, "steering.policy = affinity\n");
    assert_eq!(get("steering.policy"), "affinity\n");
    let (code, _, words) = ctl(&["set", "steering.depth", "-1"]);
    assert!(code == Some(2) && words.contains("steering.depth"), "{words}");
    assert_eq!(get("steering.depth"), "0\n");
    let (code, _, words) = ctl(&["get", "steering.none"]);
    assert!(code == Some(2) && words.contains("ctl show"), "{words}");
    let all: Value = serde_json::from_str(&ctl(&["show", "--json"]).1).expect("JSON");
    let find = |name: &str| all.as_array().unwrap().iter().find(|register| register["name"] == name).unwrap();
    assert_eq!(find("steering.policy")["origin"], "ctl");
    assert_eq!(
        (&find("limits.idle_ms")["unit"], &find("limits.idle_ms")["origin"]),
        (&"ms".into(), &"default".into())
    );
    let shown = ctl(&["show"]).1;
    assert!(shown.contains("steering.functions"));
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(
        line("device.spin_us").contains("memory only") && line("device.poll_load").contains("memory only")
    );
    assert!(!line("device.batch").contains("memory only"), "{shown}");
    assert_eq!(ctl(&["set", "device.doorbell", "coherent:4"]).1, "device.doorbell = coherent:4\n");
    let (code, _, words) = ctl(&["set", "device.batch", "65"]);
    assert!(code == Some(2) && words.contains("1 to 64"), "{words}");
    assert_eq!(get("device.batch"), "auto\n");
    let connections: Value = serde_json::from_str(&ctl(&["connections", "--json"]).1).expect("JSON");
    assert!(connections.is_array() && ctl(&["connections"]).1.contains("under way"), "{connections}");
    for arguments in [["connections", "c999999"], ["close", "c999999"]] {
        let (code, _, words) = ctl(&arguments);
        assert!(code == Some(2) && words.contains("ctl connections"), "{words}");
    }
    let absent =
        tollfree(scratch).args(["ctl", "--socket", "shm:///run/no/such.sock", "show"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(1));
}
