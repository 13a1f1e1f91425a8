"""Options of Vowpal Wabbit, and what replaces them here. docs/from-vowpal-wabbit.md has the same, for reading."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import click

_UNTUNED = "Leave it out: there is nothing to tune."
_ONE_PASS = "Leave it out: files are read once, or twice, without a cache."
_BANDITS = "Use robustfd bandit train, which reads the same files and has no exploration to tune."
_LABELS = "Leave it out: the labels decide. --task and --classes override them."
# Names of options, and the answer. {} is the value that was given.
REPLACEMENTS = {
    "-d --data": "Name the file without an option: robustfd train {} -o model.rfd.",
    "-f --final_regressor": "Use -o {}.",
    "-i --initial_regressor": "Use robustfd train FILES --from {} to continue, or robustfd predict {} FILES.",
    "-t --testonly": "Use robustfd predict MODEL FILES, or robustfd evaluate MODEL FILES for the scores.",
    "-p --predictions -r --raw_predictions": "Use robustfd predict MODEL FILES -o {}, with a name that ends with .csv.",
    "-b --bit_precision": "Use --hash-bits {}.",
    "-q --quadratic": "-q is --quiet here; use --interactions {}.",
    "--cubic": "Products of three features are not available; --interactions A:B has those of two.",
    "--passes": "Use robustfd train FILES --passes {}. One pass is usually enough.",
    "--holdout_off": "Leave out --passes or --holdout: then no row is held out.",
    "--holdout_period --holdout_after": "Use --holdout SHARE; with --passes, every tenth row is held out.",
    "--loss_function": "Leave it out for classes, which have the logistic loss; regressions have --loss.",
    "--quantile_tau": "Use --loss quantile --quantile {}.",
    "--oaa --ect --log_multi --plt --binary": _LABELS,
    "--link": "Use robustfd predict --probabilities for the probabilities of classes.",
    "--probabilities": "Use robustfd predict --probabilities.",
    "-l --learning_rate --power_t --initial_t --decay_learning_rate --l1 --l2 --adaptive --invariant --normalized "
    "--sgd --ftrl --coin --bfgs --adax --freegrad --pistol --OjaNewton --conjugate_gradient": _UNTUNED,
    "-c --cache --cache_file -k --kill_cache --compressed": _ONE_PASS,
    "--cb --cb_adf --cb_explore --cb_explore_adf": _BANDITS,
    "--cb_type --first --bag --cover --softmax --regcb --regcbopt --squarecb --synthcover --rnd --lambda": "Leave it "
    "out: robustfd bandit train has no exploration to tune.",
    "--epsilon": "Use robustfd bandit train FILES --epsilon {}, if other policies will be evaluated on the log.",
    "--eval --explore_eval": "Use robustfd bandit evaluate POLICY FILES.",
    "--cats --ccb_explore_adf --slates": "Bandits with slots or continuous actions are not available.",
    "--csoaa --csoaa_ldf --wap --wap_ldf": "Costs are not available. Use the class of the lowest cost as label.",
    "--multilabel_oaa": "Train one model for each label, with the labels 1 and -1.",
    "--ignore --ignore_linear": "Use --drop COLUMNS in tables; namespaces cannot be left out.",
    "--keep": "Use --columns COLUMNS in tables; namespaces cannot be left out.",
    "--noconstant": "Leave it out: there is always an intercept.",
    "--save_resume --preserve_performance_counters": "Leave it out: every model can be continued with --from.",
    "-a --audit --readable_model --invert_hash": "Use robustfd inspect MODEL, which shows features and weights.",
    "--nn --boosting --lrq --ngram --skips": "Only linear models are available.",
}  # fmt: skip


@contextmanager
def explained_options(context: click.Context, arguments: list[str]) -> Iterator[None]:
    """Answer an option that there is not, if Vowpal Wabbit has it."""
    try:
        if any(each == "-q" and is_pair(other) for each, other in pairwise(arguments)):
            raise click.NoSuchOption("-q")
        yield
    except click.NoSuchOption as error:
        name = error.option_name
        if any(each[:2] == "-q" and name[1:] in each[2:] and is_pair(each[2:]) for each in arguments):  # -qab
            name = "-q"
        for names, answer in REPLACEMENTS.items():
            if name in names.split():
                text = answer.replace("{}", _value(name, arguments) or "...")
                raise click.UsageError(f"{name} is an option of Vowpal Wabbit. {text}", context) from None
        raise


def is_pair(text: str) -> bool:
    """Return whether a word after -q means two namespaces. Alone, -q means --quiet, and then a file may follow."""
    return len(text) == 2 and text[0] != "-" and not os.path.exists(text)


def _value(name: str, arguments: list[str]) -> str:
    """Return the value of an option: of -b 18, -b18, --passes 2 or --passes=2."""
    for each, other in pairwise([*arguments, "-"]):
        if each.startswith(name):
            value = each[len(name) :].removeprefix("=") or ("" if other.startswith("-") else other)
            return f"{value[0]}:{value[1]}" if name == "-q" and value.isalnum() else value
    return ""
