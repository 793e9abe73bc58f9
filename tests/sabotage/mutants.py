"""Every mutant of the suite."""

from __future__ import annotations

from tests.sabotage.mutants_of_appends import OF_APPENDS
from tests.sabotage.mutants_of_claims import OF_CLAIMS
from tests.sabotage.mutants_of_commits import OF_COMMITS
from tests.sabotage.mutants_of_guards import OF_GUARDS
from tests.sabotage.mutants_of_publications import OF_PUBLICATIONS
from tests.sabotage.mutants_of_rows import OF_ROWS

MUTANTS = (*OF_CLAIMS, *OF_COMMITS, *OF_ROWS, *OF_APPENDS, *OF_GUARDS, *OF_PUBLICATIONS)
