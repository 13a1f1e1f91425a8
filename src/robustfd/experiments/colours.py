"""The colours of all figures."""

# name: (colour on white, colour on black). The palette of Okabe and Ito, which is safe for colour-blind readers, with
# brighter colours on a dark page.
COLOURS = {
    "ink": ("#22262b", "#e6e8eb"),
    "grid": ("#dcdfe3", "#363b42"),
    "rfd": ("#0072b2", "#58b4ec"),
    "fd": ("#d55e00", "#ff8f45"),
    "cfd": ("#009e74", "#34cfa2"),
    "pfd": ("#b85c93", "#e79cc8"),
    "rp": ("#009e73", "#33cfa1"),
    "oja": ("#c58a00", "#f3bd45"),
    "adagrad": ("#767c84", "#a4abb3"),
    "full": ("#6a51a3", "#b3a1ec"),
    "step0": ("#3b528b", "#8ea6e6"),
    "step1": ("#21818d", "#45b5c4"),
    "step2": ("#27994a", "#5fce7f"),
    "step3": ("#9a8b00", "#d6c63a"),
    "step4": ("#c8522c", "#f58f68"),
}
COLOURS["rfd0"] = COLOURS["ink"]
