from __future__ import annotations

import re
from pathlib import Path

from tidegate.lab.papers import PAPERS, load_paper
from tidegate.lab.papers.claims import Answer, Claim, Experiment, Verdict, claims_page

ROOT = Path(__file__).parents[3]
CLAIMS = {claim.id: (name, claim) for name in PAPERS for claim in load_paper(name).claims}


def test_there_are_54_claims_of_four_papers() -> None:
    assert len(CLAIMS) == sum(len(load_paper(name).claims) for name in PAPERS) == 54
    titles = [load_paper(name).title for name in PAPERS]
    assert titles == ["Cervino", "DRS", "FUGU", "VISP"]
    assert [load_paper(name).name for name in PAPERS] == list(PAPERS)


def test_papers_are_the_folders() -> None:
    folder = ROOT / "src" / "tidegate" / "lab" / "papers"
    assert set(PAPERS) == {path.parent.name for path in folder.glob("*/experiment.py")}


def test_the_page_has_a_row_for_each_claim() -> None:
    paper = load_paper("fugu")
    answers = {claim: Answer("0.5", "partly") for claim in paper.claims}
    answers[paper.claims[0]] = Answer("0.8233", "reproduced", "the paper | rounds")
    page = claims_page([Experiment(paper, answers)], "some command")
    rows = [line for line in page.splitlines() if re.match(r"\| F-\d\d \| FUGU, ", line)]
    assert len(rows) == len(paper.claims)
    assert "| 0.8233 | – | reproduced | reproduced | – | the paper \\| rounds |" in rows[0]
    for row, claim in zip(rows, paper.claims, strict=True):
        assert f"| {claim.published} | {claim.criterion} | {claim.partly or '–'} |" in row
    assert "18 published claims: 1 reproduced, 17 partly." in page and "`some command`" in page


def test_an_amended_criterion_is_shown_with_both_verdicts() -> None:
    paper = load_paper("visp")
    answers = {claim: Answer("46", "reproduced", first="partly") for claim in paper.claims[:1]}
    page = claims_page([Experiment(paper, answers, seeds=7)], "some command")
    assert f"| {paper.claims[0].amended} | 46 | 7 | reproduced | partly | – | – |" in page
    assert "claims: 1 reproduced. By the first criteria: 1 partly." in page


def test_one_paper_can_be_renewed_while_the_others_stay() -> None:
    fugu, visp = load_paper("fugu"), load_paper("visp")
    answers = {claim: Answer("0.5", "not", "a | b") for claim in fugu.claims}
    page = claims_page([Experiment(fugu, answers)], "first")
    table = "<table><tr><td>1</td></tr></table>"
    for figure in ("1", "2"):
        news = {claim: Answer(figure, "reproduced") for claim in visp.claims}
        page = claims_page([Experiment(visp, news, tables=table)], "then", page)
    assert page.count("\n| F-") == 18 and page.count("\n| V-") == 13
    assert "31 published claims: 13 reproduced, 18 not." in page
    assert page.count("| 2 | – | reproduced |") == 13 and "| 1 | – | reproduced |" not in page
    assert page.count("| a \\| b |") == 18 and page.count(table) == 1
    assert claims_page([Experiment(fugu, answers)], "then", page) == page


def test_the_page_has_the_cause_of_each_claim_that_is_not_reproduced() -> None:
    paper = load_paper("visp")
    verdicts: list[Verdict] = ["reproduced", "partly", "not clear", "not", "untestable"]
    answers = {
        claim: Answer("1", verdict, f"Does not hold in: a. See Fig. 7: cause {n}. Figures.")
        for n, (claim, verdict) in enumerate(zip(paper.claims, verdicts, strict=False))
    }
    page = claims_page([Experiment(paper, answers, seeds=7)], "some command")
    line = r"^- \*\*(V-\d\d)\*\*, .* \(\*(.*)\*\): (.*) Figures: `(.*)`\.$"
    found = re.findall(line, page, flags=re.M)
    command = "tidegate reproduce visp --seeds 7"
    assert found == [
        ("V-02", "partly", "See Fig. 7: cause 1.", command),
        ("V-03", "not clear", "See Fig. 7: cause 2.", command),
        ("V-04", "not", "See Fig. 7: cause 3.", command),
    ]
    assert page.index("cause 3") < page.index("| id |")  # a reader sees it before the table


def test_the_page_counts_the_verdicts_of_each_paper_first() -> None:
    fugu, visp = load_paper("fugu"), load_paper("visp")
    news = [
        Experiment(fugu, {claim: Answer("1", "not") for claim in fugu.claims}),
        Experiment(visp, {claim: Answer("1", "reproduced") for claim in visp.claims}),
    ]
    page = claims_page(news, "some command")
    assert "| FUGU | 18 | 0 | 0 | 0 | 18 | 0 |\n| VISP | 13 | 13 | 0 | 0 | 0 | 0 |\n" in page
    assert page.index("| VISP | 13 |") < page.index("| id |")


def test_rows_of_a_page_without_seeds_stay() -> None:
    fugu, visp = load_paper("fugu"), load_paper("visp")
    answers = {claim: Answer("0.5", "not") for claim in fugu.claims}
    page = claims_page([Experiment(fugu, answers)], "first").replace("| 0.5 | – |", "| 0.5 |")
    news = {claim: Answer("1", "reproduced") for claim in visp.claims}
    page = claims_page([Experiment(visp, news, seeds=10)], "then", page)
    assert page.count("| 0.5 | – | not |") == 18 and page.count("| 1 | 10 | reproduced |") == 13


def test_the_page_in_the_documentation_answers_every_claim() -> None:
    page = (ROOT / "docs" / "measured" / "claims.md").read_text()
    rows = dict(re.findall(r"^\| ([FCVD]-\d\d) \| (.*)$", page, flags=re.M))
    assert list(rows) == list(CLAIMS)
    for name, row in rows.items():
        claim: Claim[object] = CLAIMS[name][1]
        verdict = re.search(r"\| (reproduced|partly|not clear|not|untestable) \|", row)
        assert verdict, name
        where, statement, published, criterion, partly = row.split(" | ")[:5]
        assert where == f"{load_paper(CLAIMS[name][0]).title}, {claim.where}"
        assert (statement, published) == (claim.statement, claim.published)
        assert (criterion, partly) == (claim.criterion, claim.partly or "–")
        assert verdict[1] != "partly" or partly != "–", name
