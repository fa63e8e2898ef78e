//! Commands that this build leaves out. Each takes whatever was meant for it, and says how to get it.

use std::ffi::OsString;

use clap::Args;

use crate::failure::Failure;

macro_rules! left_out {
    ($($arguments:ident: $command:literal;)+) => { $(
        #[derive(Debug, Args)]
        #[command(disable_help_flag = true)]
        pub(crate) struct $arguments {
            #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
            meant_for_it: Vec<OsString>,
        }

        impl $arguments {
            pub(crate) fn run(self) -> Result<(), Failure> {
                Err(Failure::Refused(refusal($command, &self.meant_for_it)))
            }
        }
    )+ };
}

left_out! {
    CodecArgs: "bench codec";
    Figure: "figure";
    Model: "model";
    Workload: "workload";
}

fn refusal(command: &str, meant_for_it: &[OsString]) -> String {
    let mut whole = command.to_owned();
    for argument in meant_for_it {
        whole.push(' ');
        whole.push_str(&argument.to_string_lossy());
    }
    format!(
        "this build leaves `{command}` out, as `make bench` needs none of it; in lab/, this builds and runs it: \
         cargo run --release -p tollfree-lab -- {whole}"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    enum Cli {
        #[command(name = "codec")]
        CodecArgs(CodecArgs),
        Figure(Figure),
        Model(Model),
        Workload(Workload),
    }

    #[test]
    fn what_is_left_out_takes_all_arguments_and_says_how_to_get_it() {
        for (arguments, command) in [
            (&["figure", "dmrpc-fig5", "--rounds", "2", "--json"][..], "figure"),
            (&["figure", "--help"], "figure"),
            (&["codec", "--only", "shop/"], "bench codec"),
            (&["model"], "model"),
            (&["workload", "-v", "images"], "workload"),
        ] {
            let parsed = Cli::try_parse_from(["tollfree-lab"].iter().chain(arguments)).unwrap();
            let done = match parsed {
                Cli::CodecArgs(arguments) => arguments.run(),
                Cli::Figure(arguments) => arguments.run(),
                Cli::Model(arguments) => arguments.run(),
                Cli::Workload(arguments) => arguments.run(),
            };
            let Err(Failure::Refused(words)) = done else { panic!("{done:?}") };
            assert!(words.contains(&format!("leaves `{command}` out")), "{words}");
            let whole = [&[command], &arguments[1..]].concat().join(" ");
            assert!(words.ends_with(&format!("tollfree-lab -- {whole}")), "{words}");
        }
    }
}
