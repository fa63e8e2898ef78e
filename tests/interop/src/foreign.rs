//! The servers that the suite runs against, each a process of its own, and programs that are run to their end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tollfree_interop::{Certificates, Target};

use crate::Error;

/// Nothing that the suite runs takes longer than this, unless it hangs.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(60);

/// Our server, the same behind a gateway, and two of grpc-go's, and what is needed to reach them.
pub(crate) struct Lab {
    pub(crate) tools: PathBuf,
    pub(crate) directory: tempfile::TempDir,
    ca: String,
    pub(crate) plain_port: u16,
    pub(crate) tls_port: u16,
    pub(crate) gateway_plain_port: u16,
    pub(crate) gateway_tls_port: u16,
    pub(crate) go_plain_port: u16,
    pub(crate) go_tls_port: u16,
    /// By name, in the order in which they are asked to end.
    ours: Vec<(&'static str, Child)>,
    /// Killed when the suite ends.
    _theirs: [Child; 2],
}

pub(crate) fn free_port() -> Result<u16, Error> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Lab {
    pub(crate) fn start(tools: &Path) -> Result<Lab, Error> {
        let directory = tempfile::tempdir()?;
        let certificates = Certificates::generate()?;
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text);
        write("ca.pem", &certificates.ca)?;
        write("server.pem", &certificates.server)?;
        write("server.key", &certificates.server_key)?;
        let ports = [(); 6].map(|()| free_port());
        let [plain_port, tls_port, gateway_plain_port, gateway_tls_port, go_plain_port, go_tls_port] = ports;
        let (plain_port, tls_port) = (plain_port?, tls_port?);
        let (gateway_plain_port, gateway_tls_port) = (gateway_plain_port?, gateway_tls_port?);
        let (go_plain_port, go_tls_port) = (go_plain_port?, go_tls_port?);
        let file = |name: &str| directory.path().join(name);
        let path = directory.path().display();
        let mut ours = Command::new(std::env::current_exe()?);
        ours.arg("serve").args([
            format!("shm://{path}/shm.sock"),
            format!("shm-abstract:tollfree-interop-{plain_port}"),
            format!("unix:{path}/unix.sock"),
            format!("http://127.0.0.1:{plain_port}"),
            format!("https://127.0.0.1:{tls_port}"),
        ]);
        ours.arg("--certificate").arg(file("server.pem")).arg("--key").arg(file("server.key"));
        let config = format!(
            "listeners.plain.address = \"127.0.0.1:{gateway_plain_port}\"\n\
             backends.socket = \"shm://{path}/gateway.sock\"\n[listeners.tls]\n\
             address = \"127.0.0.1:{gateway_tls_port}\"\n[listeners.tls.tls]\n\
             certificate = \"{path}/server.pem\"\nkey = \"{path}/server.key\"\n"
        );
        write("gateway.toml", &config)?;
        let mut gateway = Command::new(std::env::current_exe()?);
        gateway.arg("gateway").arg(file("gateway.toml"));
        let mut behind = Command::new(std::env::current_exe()?);
        behind.arg("attach").arg(format!("shm://{path}/gateway.sock"));
        let theirs = |port: u16, tls: bool| {
            let mut server = Command::new(tools.join("server"));
            server.arg(format!("-port={port}")).arg(format!("-use_tls={tls}"));
            server.arg("-tls_cert_file").arg(file("server.pem"));
            server.arg("-tls_key_file").arg(file("server.key"));
            spawn(&mut server)
        };
        let _theirs = [theirs(go_plain_port, false)?, theirs(go_tls_port, true)?];
        Ok(Lab {
            tools: tools.to_owned(),
            ca: certificates.ca,
            plain_port,
            tls_port,
            gateway_plain_port,
            gateway_tls_port,
            go_plain_port,
            go_tls_port,
            ours: vec![
                ("server", spawn(&mut ours)?),
                ("server behind the gateway", spawn(&mut behind)?),
                ("gateway", spawn(&mut gateway)?),
            ],
            _theirs,
            directory,
        })
    }

    /// Each of our processes, asked to end, does.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        for (name, mut process) in self.ours {
            drop(process.stdin.take());
            match tokio::time::timeout(TIME_MAX, process.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                ended => return Err(format!("our {name} did not end well: {ended:?}").into()),
            }
        }
        Ok(())
    }

    pub(crate) fn target(&self, uri: String) -> Target {
        Target { uri, ca: Some(self.ca.clone()), patience: TIME_MAX, pool: None, via: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Starts a server; it is killed when it is dropped.
pub(crate) fn spawn(command: &mut Command) -> Result<Child, Error> {
    let started = command.stdin(Stdio::piped()).kill_on_drop(true).spawn();
    started.map_err(|error| format!("{:?} can't be started: {error}", command.as_std().get_program()).into())
}

/// What a program that was run to its end said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// For messages: how it ended, and its final status.
    pub(crate) fn final_status(&self) -> String {
        let all = format!("{}\n{}", self.out, self.err);
        let lines: Vec<&str> = all.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(4)..].join(" / ");
        format!("it ended with {:?}: {last}", self.code)
    }
}

/// Runs a program to its end.
pub(crate) async fn run(
    program: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<Said, String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(TIME_MAX, command.output()).await;
    let output = ended
        .map_err(|_| format!("it did not end in {} s", TIME_MAX.as_secs()))?
        .map_err(|error| format!("{} can't be run: {error}", program.display()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}
