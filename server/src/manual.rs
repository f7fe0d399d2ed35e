//! What shells and `man` know of the tool: `delayline completions`, and `delayline man` for those who package it.

use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{Cli, Failure};

/// Print what a shell needs to complete what is typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> String {
        let tool = Cli::command();
        // Each of them would offer commands that are hidden.
        let shown = tool.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown = clap::Command::new("delayline")
            .version(env!("CARGO_PKG_VERSION"))
            .args(tool.get_arguments())
            .subcommands(shown);
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shown, "delayline", &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}

/// Write a page of the manual for each command into a folder.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// A folder that is there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let refused = |cause| {
            Failure::Argument(format!(
                "FOLDER is {:?}, which cannot be written to: {cause}",
                self.folder
            ))
        };
        clap_mangen::generate_to(Cli::command(), &self.folder).map_err(refused)
    }
}
