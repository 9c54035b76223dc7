//! Tables whose rows come one after the other.

/// A table: columns are as wide as what came with the first rows, and grow with later ones.
#[derive(Debug)]
pub(in crate::cli) struct Columns<const N: usize> {
    heads: [&'static str; N],
    /// The columns that stand to the right: numbers.
    right: &'static [usize],
    widths: [usize; N],
    has_begun: bool,
}

impl<const N: usize> Columns<N> {
    /// With these heads, and numbers in some columns.
    pub(in crate::cli) fn new(heads: [&'static str; N], right: &'static [usize]) -> Self {
        Self {
            heads,
            right,
            widths: heads.map(|head| head.chars().count()),
            has_begun: false,
        }
    }

    /// More rows, behind the heads when they are the first.
    pub(in crate::cli) fn rows(&mut self, rows: &[[String; N]]) -> String {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.line(&self.heads, &mut text);
        }
        for row in rows {
            self.line(row, &mut text);
        }
        text
    }

    fn line(&self, cells: &[impl AsRef<str>; N], text: &mut String) {
        let mut line = String::new();
        for (column, (cell, &width)) in cells.iter().zip(&self.widths).enumerate() {
            let cell = cell.as_ref();
            if column > 0 {
                line.push_str("  ");
            }
            if self.right.contains(&column) {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;

    fn row(cells: [&str; 3]) -> [String; 3] {
        cells.map(str::to_owned)
    }

    #[test]
    fn columns_stand_below_each_other_and_numbers_to_the_right() {
        let mut columns = Columns::new(["CODE", "N", "TARGET"], &[1]);
        let first = columns.rows(&[row(["a", "1", "x"]), row(["länger", "100", "y"])]);
        assert_eq!(
            first,
            "CODE      N  TARGET\na         1  x\nlänger  100  y\n"
        );
        assert_eq!(columns.rows(&[row(["b", "2", ""])]), "b         2\n");
    }
}
