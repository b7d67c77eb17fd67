//! What may make a sweep's figures worse than the kernels are.

use super::record::{Figure, Row, Sweep};

impl Sweep {
    /// Notes in [`Sweep::warnings`] what may make the figures of its rows worse
    /// than the kernels are: throttling, noise above a limit, and the like.
    pub fn warn(&mut self, noise_limit: f64) {
        let sweep = self;
        let mut warnings = Vec::new();
        for device in &sweep.devices {
            if let Some(reason) = &device.nvml_absent {
                warnings.push(format!(
                    "clocks, power and throttling of device {} were not read: {reason}",
                    device.ordinal
                ));
            }
        }
        let several = sweep.devices.len() > 1;
        let named = |row: &&Row| {
            let device = row.device.filter(|_| several);
            let device = device.map_or_else(String::new, |it| format!(" on device {it}"));
            format!("{} at {}{device}", row.name(), row.shape())
        };
        for (reason, rows) in by_reason(&sweep.rows, |row| &row.throttling) {
            let rows: Vec<_> = rows.iter().map(named).collect();
            warnings.push(format!("throttled by {reason}: {}", some_of(&rows)));
        }
        for (reason, rows) in by_reason(&sweep.rows, |row| row.no_graph.as_slice()) {
            let rows: Vec<_> = rows.iter().map(named).collect();
            warnings.push(format!(
                "launched one by one in place of a graph: {}: {reason}",
                some_of(&rows)
            ));
        }
        let bound: Vec<_> = sweep
            .rows
            .iter()
            .filter(|row| row.launch_bound())
            .map(|row| named(&row))
            .collect();
        if !bound.is_empty() {
            warnings.push(format!(
                "launches take as long as the products, whose time is that of a burst: {}",
                some_of(&bound)
            ));
        }
        let limit = noise_limit;
        let noisy: Vec<_> = sweep
            .rows
            .iter()
            .filter(|row| row.samples(Figure::Time).is_some_and(|s| s.noise() > limit))
            .map(|row| named(&row))
            .collect();
        if !noisy.is_empty() {
            let percent = limit * 100.0;
            warnings.push(format!("noise over {percent} %: {}", some_of(&noisy)));
        }
        sweep.warnings = warnings;
    }
}

/// The rows that have each reason, in the order in which these first come.
fn by_reason(rows: &[Row], reasons: impl Fn(&Row) -> &[String]) -> Vec<(&str, Vec<&Row>)> {
    let mut all: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        for reason in reasons(row) {
            match all.iter_mut().find(|(known, _)| known == reason) {
                Some((_, rows)) => rows.push(row),
                None => all.push((reason, vec![row])),
            }
        }
    }
    all
}

/// The first few, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
