//! `berth explain`: the meaning of an error code.

use berth_contract::code::Code;
use serde::Serialize;

use crate::args::Explain;
use crate::output::Output;
use crate::table::Table;

/// A code with its page, as `--json` prints it.
#[derive(Debug, Serialize)]
struct CodePage {
    code: Code,
    title: &'static str,
    next: &'static str,
}

impl CodePage {
    fn describe(code: Code) -> Self {
        Self { code, title: code.title(), next: code.next() }
    }
}

/// Prints one code, or all codes.
pub fn explain(args: &Explain, output: Output) {
    if let Some(code) = args.code {
        return output.reply(&CodePage::describe(code), |page| {
            format!("{}: {}\n  next:   {}", page.code, page.title, page.next)
        });
    }
    let pages: Vec<CodePage> = Code::ALL.iter().map(|code| CodePage::describe(*code)).collect();
    output.reply(&pages, |pages| {
        let mut table = Table::new(["CODE", "MEANING"]);
        for page in pages {
            table.row([page.code.to_string(), page.title.to_owned()]);
        }
        table.to_string()
    });
}
