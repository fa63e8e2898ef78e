//! `tollfree ctl`: see and change what can be changed in a gateway that runs.

use clap::{Args, Subcommand};
use tollfree_control::{ConnectionState, Register, StateError};

use crate::failure::{Failure, print};

/// Show and change settings of a running gateway: load balancing, announcement of calls, limits, connections
#[derive(Debug, Args)]
#[command(after_help = "\
A changed value lasts until the next change, or until the gateway reads its config again (SIGHUP).
The gateway answers only its own user and root.")]
pub(crate) struct CtlCommand {
    /// Address at which backends attach to the gateway (backends.socket of its config)
    #[arg(long, global = true, value_name = "SOCKET", default_value = "shm:///run/tollfree/gateway.sock")]
    socket: String,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print one value
    Get {
        /// Name of the value, as printed by `show`
        name: String,
    },

    /// Change one value
    Set {
        /// Name of the value, as printed by `show`
        name: String,
        /// New value: a number or a name
        #[arg(allow_hyphen_values = true)]
        value: String,
    },

    /// List connections from the world and sessions of backend connections, or show one
    Connections {
        /// Id of a connection, from the list's first column
        id: Option<String>,
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },

    /// Close a connection after its calls, or end the session of a backend connection, which then attaches again
    Close {
        /// Id of a connection, as printed by `connections`
        id: String,
    },

    /// List all values, with units, and where each was set
    Show {
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Failure {
        match error {
            StateError::Refused(words) => Failure::Refused(words),
            error => Failure::Failed(error.to_string()),
        }
    }
}

impl CtlCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Failed(error.to_string()))?;
        let socket = &self.socket;
        match self.action {
            Action::Get { name } => {
                let registers = runtime.block_on(Register::read_all(socket))?;
                let register = registers.iter().find(|register| register.name == name);
                let unknown =
                    || Failure::Refused(format!("there is no value {name}; `tollfree ctl show` names all"));
                print(&format!("{}\n", value_of(register.ok_or_else(unknown)?)))
            }
            Action::Set { name, value } => {
                let register = runtime.block_on(Register::set(socket, &name, &value))?;
                print(&format!("{name} = {}\n", value_of(&register)))
            }
            Action::Connections { id, json } => {
                let mut connections = runtime.block_on(ConnectionState::read_all(socket))?;
                if let Some(id) = id {
                    connections.retain(|connection| connection.id == id);
                    if connections.is_empty() {
                        let words =
                            format!("there is no connection {id}; `tollfree ctl connections` lists all");
                        return Err(Failure::Refused(words));
                    }
                }
                match json {
                    true => print(&format!("{}\n", serde_json::json!(connections))),
                    false => print(&connection_table(&connections)),
                }
            }
            Action::Close { id } => {
                let closed = runtime.block_on(ConnectionState::close(socket, &id))?;
                print(&format!("{id} is being closed; {} calls are under way\n", closed.calls))
            }
            Action::Show { json } => {
                let registers = runtime.block_on(Register::read_all(socket))?;
                match json {
                    true => print(&format!("{}\n", serde_json::json!(registers))),
                    false => print(&table(&registers)),
                }
            }
        }
    }
}

fn value_of(register: &Register) -> String {
    register.value.as_str().map_or_else(|| register.value.to_string(), str::to_owned)
}

fn connection_table(connections: &[ConnectionState]) -> String {
    let row = |cells: [&str; 9]| {
        let [id, kind, place, calls, total, received, sent, open, peer] = cells;
        format!(
            "{id:<8} {kind:<11} {place:<20} {calls:>9} {total:>11} {received:>13} {sent:>13} {open:>11}  {peer}\n"
        )
    };
    let bytes = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let head = row(["id", "kind", "place", "under way", "calls", "bytes in", "bytes out", "open ms", "peer"]);
    let rows = connections.iter().map(|connection| {
        let closing = if connection.is_closing { " (closing)" } else { "" };
        row([
            &connection.id,
            &connection.kind,
            &connection.place,
            &connection.calls.to_string(),
            &connection.calls_total.to_string(),
            &bytes(connection.received_bytes),
            &bytes(connection.sent_bytes),
            &connection.open_ms.to_string(),
            &format!("{}{closing}", connection.peer),
        ])
    });
    std::iter::once(head).chain(rows).collect()
}

fn table(registers: &[Register]) -> String {
    let width = registers.iter().map(|register| register.name.len()).max().unwrap_or(0);
    let row = |name: &str, value: &str, unit: &str, engine: &str, origin: &str| {
        format!("{name:<width$} {value:>17} {unit:<11} {engine:<11} {origin}\n")
    };
    let engine = |register: &Register| register.engine.as_deref().map_or("", |_| "memory only").to_owned();
    let rows = registers.iter().map(|it| row(&it.name, &value_of(it), &it.unit, &engine(it), &it.origin));
    std::iter::once(row("name", "value", "unit", "engine", "said by")).chain(rows).collect()
}
