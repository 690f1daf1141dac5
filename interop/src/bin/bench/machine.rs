//! The machine under the figures, and the page that keeps them.

use anyhow::{Context as _, Result};

const BEGIN: &str = "<!-- bench: begin -->";
const END: &str = "<!-- bench: end -->";

/// One line: processor, cores, memory, kernel.
pub(crate) fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim());
        value.unwrap_or("unknown").to_owned()
    };
    let cpu = value(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim();
    format!(
        "Machine: {cpu}, {cores} cores, {memory} of memory, Linux {kernel}; the load generator\nruns on the same cores."
    )
}

/// `page` with the text between its two marks replaced.
pub(crate) fn replace_section(page: &str, section: &str) -> Result<String> {
    let (before, rest) = page
        .split_once(BEGIN)
        .context("the page has no begin mark")?;
    let (_, after) = rest.split_once(END).context("the page has no end mark")?;
    Ok(format!("{before}{BEGIN}\n{section}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let page = format!("# A\n{BEGIN}\nold\n{END}\nkept\n");
        let new = replace_section(&page, "new").unwrap();
        assert_eq!(new, format!("# A\n{BEGIN}\nnew\n{END}\nkept\n"));
    }
}
