//! `tollfree ctl`: see and change what can be changed in a shepherd that runs.

use clap::{Args, Subcommand};
use tollfree_shepherd::{Register, StateError};

use crate::bench::print;
use crate::failure::Failure;

/// See and change what can be changed in a shepherd that runs: steering and limits
#[derive(Debug, Args)]
#[command(after_help = "\
A value that was set holds until it is set again, or until the shepherd reads its config again (SIGHUP).
Only the shepherd's user, and root, may ask.")]
pub(crate) struct CtlCommand {
    /// Where business processes attach to the shepherd, as its config has it
    #[arg(long, global = true, value_name = "SOCKET", default_value = "shm:///run/tollfree/shepherd.sock")]
    socket: String,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print one value
    Get {
        /// As `show` names it
        name: String,
    },

    /// Change one value
    Set {
        /// As `show` names it
        name: String,
        /// A number, or a name
        #[arg(allow_hyphen_values = true)]
        value: String,
    },

    /// List all values, with units, and where each was said
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

fn table(registers: &[Register]) -> String {
    let width = registers.iter().map(|register| register.name.len()).max().unwrap_or(0);
    let row = |name: &str, value: &str, unit: &str, origin: &str| {
        format!("{name:<width$} {value:>17} {unit:<11} {origin}\n")
    };
    let rows = registers
        .iter()
        .map(|register| row(&register.name, &value_of(register), &register.unit, &register.origin));
    std::iter::once(row("name", "value", "unit", "said by")).chain(rows).collect()
}
