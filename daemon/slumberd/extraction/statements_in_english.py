"""The expressions of the extractor ``conversation``: what follows a subject, and what it states.

An expression is matched from the beginning of what follows the subject, without adverbs and
negation. An effect is written ``predicate=reader:group``, ``predicate='words'``, ``-predicate`` for
a retraction of all objects, or ``-predicate~group`` for a retraction by the words of a group.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

Subjects = Literal["any", "speaker", "known"]
"""Who may be the subject: everybody, the speaker only, or the speaker, relatives and pets."""


class Effect(NamedTuple):
    """One thing that an expression states or takes back.

    Attributes:
        predicate: What is stated or taken back.
        retracts: Whether it is taken back.
        reader: The name of the reader of the object; empty for fixed words.
        group: The group of the expression with the object.
        words: The fixed object.
    """

    predicate: str
    retracts: bool = False
    reader: str = ""
    group: str = ""
    words: str = ""


class Expression(NamedTuple):
    """An expression, and what it states.

    Attributes:
        id: Its name in ``extracted.by``.
        when: What follows the subject.
        effects: What it states; when the first one cannot be read, it states nothing.
        negated: What it states under a negation: ``-`` takes back the first object, a predicate
            states the object with it. Empty: nothing.
        subjects: Who may be the subject.
    """

    id: str
    when: re.Pattern[str]
    effects: tuple[Effect, ...]
    negated: str
    subjects: Subjects


_BE = "(?:am|is|are)"
_BEEN = "(?:am|is|are|have been|has been)"
_HAVE = "(?:have|has)"
_SINCE = "(?: (?:for|since|ever since|all my life|my whole life).*)"

# id | expression | effects | when negated | subjects
_TABLE: tuple[tuple[str, ...], ...] = (
    # home
    (
        "moved",
        r"(?:have |has )?(?:moved|relocated)(?: back| over| out| down| up| away| across| here|"
        r" house)*"
        r"(?: from (?P<q>.+?))? to (?P<o>.+?)(?: from (?P<p>.+))?$",
        "lives_in=place:o; lived_in=named_place:p; lived_in=named_place:q",
        "",
        "known",
    ),
    (
        "moved_from",
        r"(?:have |has )?(?:moved|relocated) (?:here |away |over |out )?(?:from|of) (?P<o>.+)",
        "lived_in=named_place:o; -lives_in~o",
        "",
        "known",
    ),
    (
        "settled",
        r"(?:have |has )?settled(?: down)? in (?P<o>.+)",
        "lives_in=named_place:o",
        "",
        "known",
    ),
    (
        "left_for",
        r"(?:have |has )?(?:left|swapped|traded) (?P<p>[A-Z].+?) (?:for|to move to) (?P<o>[A-Z].+)",
        "lives_in=named_place:o; lived_in=named_place:p",
        "",
        "known",
    ),
    (
        "lives_in",
        rf"(?:lives?|resides?|{_BEEN} (?:living|based|located|residing|settled))(?: here| out|"
        rf" over| down| up)?"
        r" (?:in|out of) (?P<o>.+)",
        "lives_in=place:o",
        "-lived_in",
        "any",
    ),
    (
        "has_lived_in",
        rf"{_HAVE} lived (?:here )?in (?P<o>.+?){_SINCE}$",
        "lives_in=place:o",
        "",
        "known",
    ),
    (
        "lived_in",
        r"(?:lived|was living|were living) in (?P<o>.+)",
        "lived_in=place:o",
        "",
        "known",
    ),
    (
        "has_been_in",
        rf"{_HAVE} been (?:here )?in (?P<o>.+?) (?:for .*(?:years?|months|decade)|since)\b",
        "lives_in=named_place:o",
        "",
        "known",
    ),
    ("lives_alone", r"lives? (?:alone|on my own|by myself)\b", "-lives_with", "", "speaker"),
    ("calls_home", r"calls? (?P<o>.+?) home$", "lives_in=named_place:o", "", "known"),
    (
        "lives_with",
        rf"(?:lives?|{_BEEN} living|moved in) with (?P<o>.+?)(?: in (?P<p>[A-Z].+))?$",
        "lives_with=nouns:o; lives_in=named_place:p",
        "-",
        "known",
    ),
    # work
    (
        "works_at_as",
        rf"(?:works?|{_BEEN} (?:working|employed)) (?:at|for) (?P<o>.+?) as (?P<p>(?:a|an|the) .+)",
        "works_at=employer:o; job=job:p",
        "-worked_at",
        "known",
    ),
    (
        "works_at",
        rf"(?:works?|{_BEEN} (?:working|employed))(?: part[- ]time| full[- ]time| remotely|"
        rf" nights| days| weekends| shifts| freelance)? (?:at|for) (?P<o>.+)",
        "works_at=employer:o",
        "-worked_at",
        "any",
    ),
    (
        "works_as_at",
        rf"(?:works?|{_BEEN} (?:working|employed)) as (?P<o>.+?) (?:at|for|with) (?P<p>(?:a|an"
        rf"|the|my|our) .+|[A-Z].+)",
        "job=job:o; works_at=employer:p",
        "",
        "known",
    ),
    (
        "works_as",
        rf"(?:works?|{_BEEN} (?:working|employed)) as (?P<o>.+)",
        "job=job:o",
        "-",
        "known",
    ),
    (
        "works_shifts_at",
        r"works? (?:[\w&-]+ ){1,6}?(?:at|for) (?P<o>(?:the )?[A-Z].+)",
        "works_at=named_employer:o",
        "-worked_at",
        "known",
    ),
    (
        "works_in_a",
        rf"(?:works?|{_BEEN} working) in (?P<o>(?:a|an|the) (?:\w+ ){{0,4}}(?:shop|bakery|hospital"
        r"|school|restaurant|bank|office|factory|library|cafe|café|hotel|company|store|bar|clinic"
        r"|studio|museum|lab|kitchen|firm|agency|pharmacy|salon|warehouse|supermarket))\b",
        "works_at=employer:o",
        "-worked_at",
        "known",
    ),
    (
        "makes_a_living",
        r"(?:make|makes|earn|earns) (?:a|my|her|his) living as (?P<o>.+)",
        "job=job:o",
        "",
        "known",
    ),
    ("reports_to", r"reports? to (?P<o>[A-Z].+)", "boss=names:o", "-", "speaker"),
    (
        "works_in",
        rf"(?:works?|{_BEEN} working|have a job|has a job) in (?P<o>.+)",
        "works_in=field:o",
        "-",
        "known",
    ),
    (
        "started_at",
        r"(?:have |has )?(?:started|begun|began)(?: a)?(?: new| working)?(?: (?:job|role"
        r"|position))?(?: working)? (?:at|with|for) (?P<o>.+)",
        "works_at=named_employer:o",
        "",
        "known",
    ),
    (
        "started_as",
        r"(?:have |has )?(?:started|begun|began)(?: a)?(?: new| working)?(?: (?:job|role"
        r"|position))? as (?P<o>.+?)(?: (?:at|with) (?P<p>.+))?$",
        "job=job:o; works_at=named_employer:p",
        "",
        "known",
    ),
    (
        "got_job_at",
        r"(?:have |has )?(?:got|gotten|landed|found|took|taken|accepted|have|has|started"
        r"|begun)(?: a| an| the| my)?(?: \w+){0,2} (?:job|role|position|offer|gig)"
        r"(?: as (?P<p>.+?))? (?:at|with|from|for) (?P<o>.+)",
        "works_at=named_employer:o; job=job:p",
        "",
        "known",
    ),
    (
        "got_job_as",
        r"(?:have |has )?(?:got|gotten|landed|found|took|taken|accepted|have|has|started"
        r"|begun)(?: a| an| the| my)?(?: [\w-]+){0,4} (?:job|role|position|gig)"
        r" as (?P<o>.+)",
        "job=job:o",
        "",
        "known",
    ),
    (
        "hired_by",
        r"(?:got|was|have been|has been) hired (?:by|at) (?P<o>.+?)(?: as (?P<p>.+))?$",
        "works_at=employer:o; job=job:p",
        "",
        "known",
    ),
    (
        "religion",
        rf"(?:{_BE}|became|have become|was raised|converted to|have converted to|has converted"
        rf" to|joined the|have joined the|has joined the) (?:a |an |a practi[sc]ing "
        rf"|practi[sc]ing |devout )?(?P<o>.+)",
        "religion=religion:o",
        "-",
        "known",
    ),
    (
        "joined",
        r"(?:have |has )?joined (?!.*\b(?:club|choir|team|gym|band|orchestra|group|league"
        r"|church|society|union|class)\b)(?P<o>.+?)(?: as (?P<p>.+))?$",
        "works_at=company:o; job=job:p",
        "",
        "known",
    ),
    (
        "joined_group",
        r"(?:have |has )?(?:joined|am in|is in|am part of) (?P<o>(?:a|an|the|my|our) .*(?:club"
        r"|choir|team|gym|band|orchestra|group|league|church|society|union|class)\b.*)",
        "member_of=noun:o",
        "",
        "known",
    ),
    (
        "switched_jobs",
        r"(?:have |has )?(?:(?:switched|changed|moved) (?:jobs|companies|employers)"
        r"(?: from)? (?P<p>.+?) to|left (?P<q>.+?) (?:for|to join|to work (?:at|for)))"
        r" (?P<o>[A-Z].+)",
        "works_at=company:o; worked_at=company:p; worked_at=company:q",
        "",
        "known",
    ),
    (
        "changed_jobs",
        r"(?:have |has )?(?:switched|changed) (?:jobs|companies|employers|careers)(?: (?:to"
        r"|and) (?:\w+ )?(?:at )?(?P<o>.+))?$",
        "-works_at; works_at=named_employer:o",
        "",
        "known",
    ),
    (
        "worked_at",
        r"(?:worked|was working|were working)(?: part[- ]time)? (?:at|for) (?P<o>.+)",
        "worked_at=employer:o",
        "",
        "known",
    ),
    (
        "second_job",
        rf"(?:have|has|got|took|{_BE} working)(?: on)? (?:a|another) (?:second|side|weekend"
        rf"|part[- ]time) (?:job|gig) (?:at|with|in) (?P<o>.+)",
        "works_also_at=employer:o",
        "",
        "known",
    ),
    (
        "teaches_at",
        r"teach(?:es)? at (?P<o>(?:the )?[A-Z].+)",
        "works_at=named_employer:o",
        "",
        "known",
    ),
    (
        "left_job",
        r"(?:have |has )?(?:quit|left|resigned from|lost|gave up|given up)(?: from)? (?:my|his"
        r"|her|the) (?:old |current |full-time |day |corporate |last )?(?:job|position|role|work)"
        r"(?: (?:at|with) (?P<o>.+?))?(?: (?:as|to|for|last|this|because|in|and|on|after|today"
        r"|yesterday)\b.*)?$",
        "-works_at; worked_at=employer:o",
        "",
        "known",
    ),
    (
        "laid_off",
        r"(?:got|was|were|have been|has been|am|is) (?:fired|laid off|sacked|let go|made"
        r" redundant|the sack|the boot|canned)(?: (?:from|by|at) (?P<o>.+))?",
        "-works_at; worked_at=named_employer:o",
        "",
        "known",
    ),
    (
        "resigned",
        r"(?:have |has )?(?:resigned|handed in (?:my|his|her) (?:notice|resignation)|quit)"
        r"(?: (?:at|from) (?P<o>[A-Z].*?))?(?: (?:last|this|yesterday|today|on|in)\b.*)?$",
        "-works_at; worked_at=named_employer:o",
        "",
        "known",
    ),
    (
        "quit_company",
        r"(?:have |has )?(?:quit|resigned from|finished at) (?P<o>[A-Z].+)",
        "worked_at=company:o; -works_at~o",
        "",
        "known",
    ),
    (
        "left_place",
        r"(?:have |has )?left (?P<o>[A-Z].+)",
        "-works_at=company:o; -lives_in~o; -studies_at~o",
        "",
        "known",
    ),
    (
        "left_group",
        r"(?:have |has )?(?:quit|left) (?P<o>(?:a|an|the|my|our) .*"
        r"(?:club|choir|team|gym|band|orchestra|group|league|church|society|union)\b)",
        "-member_of~o",
        "",
        "known",
    ),
    (
        "unemployed",
        rf"{_BE} (?:unemployed|jobless|out of work|between jobs|out of a job)\b",
        "job='unemployed'; -works_at",
        "-",
        "known",
    ),
    (
        "retired",
        r"(?:am |is |are |have |has |got )?retired(?! (?:the|my|it|from (?:football|tennis"
        r"|running|racing|cycling|boxing)))(?: from (?P<o>.+))?(?P<z>\b.*)$",
        "job='retired'; -works_at; worked_at=named_employer:o",
        "-",
        "known",
    ),
    (
        "self_employed",
        rf"(?:{_BE} (?:self[- ]employed|a freelancer|freelancing|my own boss)|work for myself"
        rf"|went freelance|started freelancing)\b(?P<o>.*)",
        "job='self-employed'; -works_at",
        "",
        "known",
    ),
    (
        "job_at",
        rf"{_BEEN} (?P<o>(?:a|an|the|now|head|chief|lead|senior|junior|one of the) .+?) (?:at"
        rf"|for|with) (?P<p>[A-Z].+)",
        "job=job:o; works_at=named_employer:p",
        "",
        "known",
    ),
    ("job", rf"{_BEEN} (?P<o>(?:a|an|the) .+)", "job=job:o", "-", "known"),
    (
        "became",
        r"(?:have |has )?(?:became|become|got promoted to|was promoted to|have been promoted"
        r" to|has been promoted to|qualified as|trained as|was made|been promoted to) (?P<o>.+)",
        "job=job:o",
        "",
        "known",
    ),
    (
        "runs",
        r"(?:runs?|owns?|opened|founded|started|have started|has started|launched|have opened)"
        r" (?P<o>(?:a|an|my own|my|her own|his own) .*(?:business|company|shop|startup|bakery"
        r"|cafe|café|restaurant|studio|store|practice|agency|brewery|bookshop|farm|blog"
        r"|podcast|channel|charity|newsletter|salon|gallery))\b",
        "started=noun:o",
        "",
        "known",
    ),
    (
        "teaches",
        r"teach(?:es)? (?P<o>.+?)(?: (?:at|in) (?P<p>[A-Z].+))?$",
        "job=subject:o; works_at=named_employer:p",
        "",
        "known",
    ),
    (
        "works_on",
        rf"{_BE} (?:writing|building|developing|working on|composing|recording|restoring"
        rf"|renovating) (?P<o>(?:a|an|my|our|my own) .*(?:novel|book|game|app|album|thesis"
        rf"|dissertation|startup|memoir|screenplay|phd|house|boat|car|song|comic|podcast"
        rf"|website|blog|short film|documentary))\b",
        "works_on=noun:o",
        "",
        "known",
    ),
    # study
    (
        "studies_at",
        rf"(?:stud(?:y|ies)(?: .+?)?|{_BEEN} (?:studying(?: .+?)?|enrolled(?: in .+?)?|a"
        rf" (?:\w+ ){{0,3}}student|a (?:freshman|sophomore|junior|senior))|go|goes|attends?"
        rf"|transferred to|have transferred to|has transferred to|switched to|got into|got"
        rf" accepted (?:to|into|at)|am doing my (?:phd|masters|master's|degree)(?: in .+?)?)"
        r"(?: at| to| in)? (?P<o>(?:the )?(?:[A-Z][\w'.&-]* )*(?:University|College|School"
        r"|Institute|Academy|Uni|MIT|UCLA|NYU|USC|ETH|Oxford|Cambridge|Stanford|Harvard|Yale"
        r"|Princeton|Berkeley)\b(?: of [A-Z]\w+(?: [A-Z]\w+)?)?)",
        "studies_at=named_employer:o",
        "-",
        "known",
    ),
    (
        "studies",
        rf"(?:{_BEEN} (?:studying|majoring in|doing a (?:degree|master'?s|phd) in|doing my"
        rf" (?:degree|master'?s|phd) in|pursuing a (?:degree|master'?s|phd) in)|majors? in"
        rf"|stud(?:y|ies)|(?:switched|changed) (?:my )?major to|(?:am|is) a .+? (?:major"
        rf"|student) in) (?P<o>.+)",
        "studies=study:o",
        "-",
        "known",
    ),
    (
        "switched_drink",
        r"(?:have |has )?(?:switched|changed) from (?P<p>.+?) to (?P<o>.+)",
        "drinks=drink:o; -drinks~p",
        "",
        "known",
    ),
    (
        "switched_subject",
        r"(?:have |has )?(?:switched|changed|moved)(?: over)?(?: from (?P<p>\w+))? to (?P<o>.+)",
        "studies=subject_of_study:o",
        "",
        "known",
    ),
    ("major", rf"{_BE} (?:a|an) (?P<o>.+?) (?:major|student)$", "studies=study:o", "-", "known"),
    (
        "year_of",
        rf"{_BE} in (?:my|the) (?:\w+) year of (?:a |my )?(?P<o>.+?)(?: at (?P<p>[A-Z].+))?$",
        "studies=study:o; studies_at=named_employer:p",
        "",
        "known",
    ),
    (
        "studied",
        r"(?:studied|majored in|have a (?:degree|master'?s|phd|bachelor'?s) in|did (?:a|my)"
        r" (?:degree|master'?s|phd|bachelor'?s) in|got (?:a|my) (?:degree|master'?s|phd"
        r"|bachelor'?s) in) (?P<o>.+?)(?: (?:at|from) (?P<p>.+))?$",
        "studied=study:o",
        "",
        "known",
    ),
    (
        "graduated_from",
        r"(?:have |has )?graduated from (?P<o>.+)",
        "graduated_from=school:o; -studies_at=school:o",
        "",
        "known",
    ),
    (
        "graduated",
        r"(?:have |has )?(?:graduated|dropped out|finished (?:uni|university|college|school|my"
        r" degree|my studies))\b(?! from| with)(?: of (?P<o>.+))?",
        "-studies_at; -studies",
        "",
        "known",
    ),
    (
        "learning",
        rf"(?:{_BE} (?:learning|taking up|teaching myself)|(?:have |has )?(?:started|begun"
        rf"|began)(?: learning)?|learn|learns)(?: how)?(?: to (?:play|speak|learn))?(?: the)?"
        rf" (?P<o>.+)",
        "learning=skill:o",
        "-",
        "known",
    ),
    (
        "lessons",
        rf"(?:{_BE} taking|takes?|(?:have |has )?(?:started|signed up for|begun|began)|{_HAVE}"
        rf"|am doing|am having) (?P<o>.+?) (?:lessons|classes)\b",
        "learning=lesson:o",
        "-",
        "known",
    ),
    (
        "volunteers_at",
        rf"(?:volunteers?|{_BE} volunteering|{_HAVE} started volunteering|started"
        rf" volunteering) (?:at|with|for) (?P<o>.+)",
        "volunteers_at=employer:o",
        "-",
        "known",
    ),
    (
        "member_of",
        rf"(?:{_BE} (?:a|an active|a proud) member of|belongs? to|{_BE} in) (?P<o>(?:a|an|the"
        rf"|my|our) .*(?:club|choir|team|band|orchestra|league|church|society|union|group)\b.*)",
        "member_of=noun:o",
        "-",
        "known",
    ),
    (
        "sings_in",
        r"(?:sings?|plays?|am|is) in (?P<o>(?:a|an|the|my|our) .*(?:choir|band|orchestra|team)\b)",
        "member_of=noun:o",
        "-",
        "known",
    ),
    # identity
    ("called", r"(?:am|is|are) (?:called|named|known as) (?P<o>.+)", "name=names:o", "", "known"),
    (
        "goes_by",
        r"(?:go|goes|prefers to go|prefer to go|went) by (?P<o>[A-Z].+)",
        "name=names:o",
        "",
        "known",
    ),
    (
        "changed_name",
        r"(?:have |has )?(?:changed|legally changed) (?:my|her|his) name (?:from .+? )?to"
        r" (?P<o>[A-Z].+)",
        "name=names:o",
        "",
        "known",
    ),
    (
        "pronouns",
        r"(?:use|uses|go by|goes by|prefer) (?P<o>(?:she|he|they)(?:/\w+)+)(?: pronouns)?",
        "pronouns=pronouns:o",
        "",
        "known",
    ),
    (
        "age",
        rf"{_BE} (?P<o>\d{{1,3}}|[a-z]+(?:[- ][a-z]+)?)(?: (?:years? old|years of age|yo|y/o"
        rf"|yrs old)\b.*|(?: now)?$)",
        "age=age:o",
        "",
        "known",
    ),
    ("aged", rf"{_BE} (?:a|an) (?P<o>\d{{1,3}})[- ]years?[- ]old\b", "age=age:o", "", "known"),
    (
        "turned",
        r"(?:have |has )?(?:turned|hit|reached) (?P<o>\d{1,3}|[a-z]+(?:[- ][a-z]+)?)(?:"
        r" (?:years old|last|this|yesterday|today|on|in|recently|two|a)\b.*)?$",
        "age=age:o",
        "",
        "known",
    ),
    (
        "born_on",
        r"(?:was|am|is|were) born (?:on )?(?P<o>(?:the )?(?:\d{1,2}|[A-Za-z]{3,9} \d{1,2}).*)",
        "birthday=day:o",
        "",
        "known",
    ),
    (
        "birth_year",
        r"(?:was|am|is|were) born in (?P<o>(?:19|20)\d\d)\b(?:,? in (?P<p>.+))?",
        "birth_year=year:o; born_in=named_place:p",
        "",
        "known",
    ),
    (
        "born_and_raised",
        r"(?:was|am|is|were) born and (?:raised|grew up|bred) in (?P<o>.+)",
        "born_in=place:o; grew_up_in=place:o",
        "",
        "known",
    ),
    ("born_in", r"(?:was|am|is|were) born in (?P<o>[A-Za-z].+)", "born_in=place:o", "-", "known"),
    (
        "from",
        r"(?:am|is|are|comes?|come|hails?) (?:originally )?from (?P<o>.+)",
        "from=place:o",
        "-",
        "known",
    ),
    (
        "grew_up_in",
        r"(?:grew up|was raised|were raised|spent my childhood) (?:mostly |partly )?in (?P<o>.+)",
        "grew_up_in=place:o",
        "",
        "known",
    ),
    (
        "nationality",
        rf"{_BE} (?:a |an |half |part |originally |originally a |native )?(?P<o>.+)",
        "nationality=nationality:o",
        "-",
        "known",
    ),
    (
        "citizen",
        r"(?:became|have become|am) (?:a|an) (?P<o>\w+(?: \w+)?) citizen",
        "nationality=nationality:o",
        "-",
        "known",
    ),
    (
        "height",
        rf"{_BE} (?:about )?(?P<o>\d(?:'|\.| ?ft ?| feet ?| foot ?)\d{{0,2}}\"?(?: ?m|"
        rf" inches)?|\d{{3}} ?cm|\d ?m ?\d\d)(?: tall)?\b",
        "height=phrase:o",
        "",
        "known",
    ),
    (
        "handedness",
        rf"{_BE} (?:a )?(?P<o>left|right)(?:-| )?hande[dr]r?\b(?P<z>.*)",
        "handedness=handed:o",
        "",
        "known",
    ),
    (
        "trait",
        rf"{_BE} (?P<o>(?:a |an |more of an? |such an? |a bit of an? |a total |a huge |a real "
        rf"|quite an? |the )?.+)",
        "trait=trait:o",
        "-",
        "known",
    ),
    (
        "speaks",
        rf"(?:speaks?|{_BE} fluent in|{_BE} bilingual in|knows?|learned|learnt|know how to"
        rf" speak|can speak|cannot speak) (?:fluent |some |a little |a bit of |both "
        rf"|conversational |basic |native )?(?P<o>.+)",
        "speaks=language:o",
        "-",
        "known",
    ),
    # people
    (
        "dead_spouse",
        r"(?:am|is) (?:a )?(?:widow|widower|widowed)\b",
        "marital_status='widowed'; -partner",
        "",
        "known",
    ),
    (
        "married_to",
        rf"(?:(?:have |has )?(?:got |gotten )?married|{_BE} married)(?: to)? (?P<o>[A-Z].+)",
        "partner=names:o; marital_status='married'",
        "",
        "known",
    ),
    (
        "engaged_to",
        rf"(?:(?:have |has )?got engaged|{_BE} engaged) to (?P<o>[A-Z].+)",
        "partner=names:o; marital_status='engaged'",
        "",
        "known",
    ),
    (
        "divorced",
        r"(?:(?:have |has )?(?:got|gotten)|am|is|are|am a|is a|was|have been) divorced\b(?P<z>.*)",
        "marital_status='divorced'; -partner",
        "-",
        "known",
    ),
    (
        "separated",
        r"(?:(?:have |has )?(?:separated|split up|broken up|broke up|split)|am separated|are"
        r" separated)(?: (?:with|from) (?P<o>.+))?(?: (?:last|this|a|two|in|after|recently"
        r"|for)\b.*)?$",
        "marital_status='single'; -partner",
        "",
        "known",
    ),
    (
        "ended_it",
        r"(?:have |has )?(?:dumped|left|divorced) (?:my|his|her) (?P<o>wife|husband|boyfriend"
        r"|girlfriend|fiancee?|fiancée?|partner)\b(?P<z>.*)",
        "marital_status='single'; -partner",
        "",
        "known",
    ),
    (
        "married",
        rf"(?:(?:have |has )?(?:got |gotten )married|{_BEEN} married|tied the knot"
        rf"|eloped)\b(?! (?:to (?:my job|my work)|in the))(?P<z>.*)",
        "marital_status='married'",
        "-",
        "known",
    ),
    (
        "engaged",
        rf"(?:(?:have |has )?(?:got|gotten) engaged|{_BE} engaged)\b(?! (?:in|with))(?P<z>.*)",
        "marital_status='engaged'",
        "-",
        "known",
    ),
    (
        "single",
        rf"{_BE} (?:single|unmarried)\b(?! (?:mom|mum|dad|mother|father|parent|child"
        rf"|handed))(?: again)?(?P<z>.*)",
        "marital_status='single'; -partner",
        "-",
        "known",
    ),
    (
        "dating",
        rf"(?:{_BEEN} (?:dating|seeing|going out with|in a relationship with)|(?:have |has"
        rf" )?(?:started|begun) (?:dating|seeing)|met my) (?:(?:a|this) (?:\w+ )?(?:guy|girl"
        rf"|man|woman|boy|lady|someone|somebody) (?:named|called) )?(?P<o>[A-Z].+)",
        "partner=names:o; marital_status='in a relationship'",
        "",
        "known",
    ),
    (
        "in_relationship",
        rf"{_BEEN} (?:in a (?:\w+ )?relationship|dating (?:someone|somebody)|seeing (?:someone"
        rf"|somebody))\b(?P<z>.*)",
        "marital_status='in a relationship'",
        "-",
        "known",
    ),
    (
        "children",
        rf"(?:{_HAVE}|{_HAVE} got|{_BE} (?:a |the )?(?:proud |single |busy )?(?:mom|mum|mother"
        rf"|father|dad|parent|parents)(?: of| to)) (?P<o>\w+) (?:\w+ )?(?:kids?|children|boys"
        rf"|girls|daughters|sons|kiddos)\b(?P<z>.*)",
        "children=count:o",
        "",
        "known",
    ),
    (
        "parent_of",
        rf"{_BE} (?:a |the )?(?:proud |single |busy )?(?:mom|mum|mother|father|dad|parent"
        rf"|parents)(?: of| to) (?P<o>two|three|four|five|six|\d)\b",
        "children=count:o",
        "",
        "known",
    ),
    (
        "has_child",
        rf"(?:{_HAVE}(?: got| had)?|had|adopted|have adopted|welcomed) (?:a|an|one|our|my)(?:"
        rf" new| baby| first| second| little| older| younger| toddler| teenage| grown| newborn"
        rf"|,)* (?:\d{{1,2}}[- ](?:year|month|week)[- ]old )?(?:baby )?(?P<o>son|daughter|boy"
        rf"|girl|baby|toddler)\b(?:,? (?:named|called) (?P<p>.+))?",
        "has_child=child:o",
        "",
        "known",
    ),
    (
        "no_children",
        rf"(?:{_HAVE}) (?:no|any) (?:kids|children)\b(?P<z>.*)",
        "children='none'",
        "",
        "known",
    ),
    (
        "siblings",
        rf"(?:{_HAVE}(?: got)?) (?P<o>(?:a|an|one|two|three|four|five|six|\d)\b(?: older|"
        rf" younger| twin| little| big| half| step|-)*[ -]?(?:brothers?|sisters?|siblings?)(?:"
        rf" and (?:a|an|one|two|three|four|\d)\b(?: older| younger| twin| little| big| half)*"
        rf" (?:brothers?|sisters?))?)\b(?:,? (?:named|called) (?P<p>.+))?",
        "has_sibling=siblings:o",
        "",
        "known",
    ),
    (
        "pregnant",
        rf"{_BE} (?:\w+ (?:weeks|months) )?(?P<o>pregnant)\b",
        "health=health:o",
        "-",
        "known",
    ),
    # pets
    (
        "pet",
        rf"(?:{_HAVE}(?: got)?|owns?|(?:have |has )?(?:got|adopted|bought|rescued|fostered"
        rf"|brought home|taken in|took in|picked up|inherited)|got myself|got ourselves)"
        rf" (?P<o>(?:a|an|one|two|three|four|five|six|\d|another|our|my|some)\b.+)",
        "has_pet=pet:o",
        "-",
        "any",
    ),
    (
        "lost_pet",
        r"(?:have |has )?(?:(?:had to )?(?:let|put|give|gave|gave away|rehomed?|lost|buried"
        r"|bury|said goodbye to|say goodbye to|sold|euthani[sz]ed?)) (?:away |down |up"
        r" )?(?P<o>(?:my|our|the) .+?)(?: (?:go|down|away|up|to sleep|last|this|yesterday"
        r"|today|because|after|for)\b.*)?$",
        "-pet~o",
        "",
        "known",
    ),
    (
        "lost_named_pet",
        r"(?:have |had to |have had to )?(?:(?:put|say goodbye to|said goodbye to|lost|buried"
        r"|bury) (?P<o>[A-Z][a-z]+)(?: (?:down|to sleep|last|this|yesterday|today|on|in)\b.*)?$)",
        "-pet_name~o",
        "",
        "known",
    ),
    # body, food
    (
        "diet",
        rf"(?:{_BEEN}|went|goes|go|(?:have |has )?(?:become|became|turned|gone)|eat|eats"
        rf"|keeps?|{_BE} eating|follows?|switched to|{_BE} on|{_BE} doing|stays?|{_BE}"
        rf" following)(?: back)?(?: to)?(?: being)? (?:a |an |strictly |fully |mostly |the"
        rf" )?(?P<o>.+?)(?: diet)?$",
        "diet=diet:o",
        "-",
        "any",
    ),
    (
        "quit_diet",
        r"(?:have |has )?(?:quit|stopped|gave up|given up) (?:being |eating |going )?(?:a |an"
        r" )?(?P<o>vegan|vegetarian|pescatarian|keto|veganism|vegetarianism|paleo|kosher"
        r"|halal)\b(?P<z>.*)",
        "-diet",
        "",
        "known",
    ),
    (
        "eats_meat_again",
        r"(?:(?:am back to|is back to|went back to) eating|(?:eats?|am eating|is eating"
        r"|started eating|have started eating)(?=.* (?:again|now))) (?P<o>meat|fish|chicken"
        r"|dairy|eggs)",
        "-diet; eats=food:o; -avoids~o",
        "",
        "known",
    ),
    (
        "allergic_to",
        rf"{_BEEN} (?:\w+ )?(?:allergic|intolerant) to (?P<o>.+)",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "allergy",
        rf"(?:{_HAVE}(?: got)?|developed|have developed|suffer from|suffers from) (?:a |an "
        rf"|got )?(?:severe |bad |mild |serious |terrible |slight )?(?P<o>\w+(?:[ -]\w+)?)"
        rf" allerg(?:y|ies)\b",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "allergy_to",
        rf"(?:{_HAVE}(?: got)?|developed|have developed|suffer from) (?:a |an )?(?:severe |bad"
        rf" |mild |serious |terrible |slight )?allerg(?:y|ies) to (?P<o>.+)",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "outgrew",
        r"(?:have |has )?(?:outgrew|outgrown|got over|grew out of|got rid of) (?:my|his|her)"
        r" (?P<o>.+?) allergy\b",
        "-allergic_to~o",
        "",
        "known",
    ),
    (
        "health",
        rf"(?:{_HAVE}(?: got| had| developed)?|{_BEEN}|suffers? from|{_BEEN} (?:suffering from"
        rf"|diagnosed with|dealing with)|(?:was|got|have been|has been) diagnosed (?:with|as)"
        rf"|developed|struggles? with|live with|lives with) (?P<o>(?:a |an )?.+)",
        "health=health:o",
        "-",
        "known",
    ),
    (
        "diagnosed",
        r"(?:was|were|got|have been|has been|am|is) (?:recently |just )?diagnosed (?:with|as)"
        r" (?P<o>.+)",
        "health=nouns:o",
        "",
        "known",
    ),
    (
        "recovered",
        r"(?:have |has )?(?:recovered from|beat|beaten|got over|am free of|no longer suffer"
        r" from|am cured of|was cured of) (?:my |the )?(?P<o>.+)",
        "-health~o",
        "",
        "known",
    ),
    (
        "broke_bone",
        r"(?:have |has )?(?:broke|broken|fractured|sprained|tore|torn) (?:my|his|her)"
        r" (?P<o>(?:left |right )?(?:arm|leg|wrist|ankle|foot|hand|toe|finger|collarbone|hip"
        r"|nose|knee|acl|elbow|rib|shoulder|thumb))\b",
        "health=injury:o",
        "",
        "known",
    ),
    (
        "medication",
        rf"(?:takes?|must take|{_BEEN} (?:on|taking)|uses?|(?:was|have been|has been|am|is|got)"
        rf" prescribed|(?:have |has )?started (?:taking|on)?|switched (?:from (?P<p>.+?) )?to)"
        rf" (?P<o>.+)",
        "medication=medication:o; -medication~p",
        "-",
        "known",
    ),
    (
        "quit_medication",
        r"(?:have |has )?(?:stopped|quit|came off|come off|am off|went off|gave up)(?: taking|"
        r" using)? (?:my |the )?(?P<o>.+)",
        "-medication=medication:o",
        "",
        "known",
    ),
    (
        "quit_drinking",
        r"(?:have |has )?(?:quit|stopped|gave up|given up|cut out) drinking(?: (?P<o>.+))?$",
        "avoids=drunk:o",
        "",
        "known",
    ),
    (
        "gave_up",
        r"(?:have |has )?(?:quit|stopped|gave up|given up|cut out|went off)(?: eating|"
        r" drinking| having)? (?P<o>.+)",
        "avoids=consumed:o; -eats~o; -drinks~o",
        "",
        "known",
    ),
    (
        "quit_smoking",
        r"(?:(?:have |has )?(?:quit|stopped|gave up|given up)|(?:am|is) done (?:with|w))"
        r" (?P<o>smoking|vaping)\b(?P<z>.*)",
        "-habit~o; -trait='smoker'",
        "",
        "known",
    ),
    (
        "smokes",
        r"(?:smokes?|vapes?|started (?:smoking|vaping)|took up (?:smoking|vaping))\b(?P<o>.*)",
        "habit='smoking'",
        "-",
        "known",
    ),
    (
        "quit_habit",
        r"(?:have |has )?(?:quit|stopped|gave up|given up) (?:doing |playing |going )?(?P<o>"
        r"(?!(?:crying|laughing|talking|trying|being|thinking|working|texting|caring|worrying"
        r"|feeling|seeing|using|watching|buying|asking|getting|having|wearing|believing|living"
        r"|on|my|the|hope|after|for|because|when|at|by|it|now|and|in)\b)\w.+)",
        "-activity~o",
        "",
        "known",
    ),
    (
        "back_on",
        rf"{_BE} (?:back on|back to drinking|drinking) (?P<o>.+)",
        "drinks=drink:o",
        "",
        "known",
    ),
    ("touches", r"touch(?:es)? (?P<o>.+)", "eats=consumed:o", "avoids", "known"),
    ("drinks_nothing", r"drinks?(?: any)? ?(?:alcohol)?$", "drinks='alcohol'", "avoids", "known"),
    (
        "drinks",
        rf"(?:drinks?|{_BE} drinking|started drinking|have started drinking|only drinks?|went"
        rf" back to) (?P<o>.+)",
        "drinks=drink:o",
        "avoids",
        "known",
    ),
    (
        "eats",
        r"(?:eats?|started eating|have started eating|eats? mostly) (?P<o>.+)",
        "eats=food:o",
        "avoids",
        "known",
    ),
    (
        "avoids",
        rf"(?:avoids?|stays? away from|cannot (?:eat|drink|have|tolerate)|{_BE} avoiding|{_BE}"
        rf" off|stays? off) (?P<o>.+)",
        "avoids=consumed:o",
        "",
        "known",
    ),
    # taste
    (
        "prefers",
        r"(?:prefers?|would prefer) (?P<o>.+?)(?: (?:to|over|rather than|instead of|than) .+)?$",
        "prefers=things:o",
        "",
        "known",
    ),
    (
        "prefers_more",
        r"likes? (?P<o>.+?) (?:better than|more than) .+",
        "prefers=things:o",
        "",
        "known",
    ),
    (
        "likes_doing",
        r"(?:loves?|likes?|enjoys?|adores?) to (?P<o>.+)",
        "likes=activity:o",
        "dislikes",
        "known",
    ),
    (
        "likes",
        rf"(?:loves?|likes?|enjoys?|adores?|{_BEEN} (?:a )?(?:big |huge |massive |real |great"
        rf" )?fans? of|{_BEEN} (?:(?:really|totally|super|very|so|big) )*(?:into|interested in"
        rf"|obsessed with|fond of|keen on|crazy about|addicted to|passionate about|a sucker"
        rf" for)|got into|have gotten into|{_HAVE} a (?:thing|passion|soft spot) for|cannot"
        rf" get enough of|cannot live without) (?P<o>.+)",
        "likes=things:o",
        "dislikes",
        "known",
    ),
    (
        "dislikes",
        r"(?:hates?|dislikes?|detests?|despises?|loathes?|cannot (?:stand|bear)|am sick of"
        r"|(?:have )?gone off) (?P<o>.+)",
        "dislikes=things:o",
        "",
        "known",
    ),
    (
        "fears",
        rf"(?:{_BE} (?:\w+ )?(?:afraid|scared|terrified|frightened) of|{_HAVE} (?:a|an) (?:\w+"
        rf" )?(?:fear|phobia) of|fears?) (?P<o>.+)",
        "fears=things:o",
        "-",
        "known",
    ),
    (
        "supports",
        r"(?:supports?|roots? for|am rooting for|have supported) (?P<o>(?:the )?[A-Z].+)",
        "supports=team:o",
        "-",
        "known",
    ),
    (
        "fan_of_team",
        rf"{_BE} (?:a|an) (?:\w+ )?(?P<o>[A-Z][\w .'-]+?) (?:fan|supporter)\b",
        "supports=team:o",
        "-",
        "known",
    ),
    (
        "listens_to",
        rf"(?:listens?|{_BE} listening) to (?P<o>.+)",
        "listens_to=heard:o",
        "",
        "known",
    ),
    (
        "watching",
        rf"(?:{_BEEN} (?:watching|binge-watching|binging|rewatching|re-watching)|(?:have"
        rf" )?started watching) (?P<o>.+)",
        "watching=title:o",
        "",
        "known",
    ),
    (
        "reading",
        rf"(?:{_BEEN} (?:reading|rereading|re-reading)|(?:have )?started reading) (?P<o>.+)",
        "reading=title:o",
        "",
        "known",
    ),
    (
        "finished_reading",
        r"(?:have |has )?(?:finished|gave up on)(?: reading| watching)? (?P<o>[A-Z].+)",
        "-reading=title:o; -watching=title:o",
        "",
        "known",
    ),
    (
        "collects",
        rf"(?:collects?|{_BE} collecting|started collecting) (?P<o>.+)",
        "collects=nouns:o",
        "-",
        "known",
    ),
    (
        "plays",
        rf"(?:plays?|{_BEEN} playing|(?:have |has )?(?:started playing|took up|taken up))"
        rf" (?:the )?(?P<o>.+)",
        "plays=plays:o",
        "-",
        "known",
    ),
    (
        "hobby",
        r"(?:took up|have taken up|has taken up|got into|picked up|have picked up|got back"
        r" into) (?P<o>.+)",
        "hobby=pastime:o",
        "",
        "known",
    ),
    (
        "practises",
        r"(?:practi[cs]es?|does|do) (?P<o>(?:yoga|pilates|karate|judo|crossfit|ballet"
        r"|taekwondo|tai chi|gymnastics|boxing|kickboxing|pottery|ceramics|calligraphy"
        r"|meditation|archery|fencing|aikido|jiu-jitsu|stand-up comedy|improv|parkour"
        r"|photography|embroidery|triathlons|marathons|crossword puzzles|crosswords)\b)",
        "hobby=phrase:o",
        "-",
        "known",
    ),
    # things
    (
        "owns",
        rf"(?:(?:have|has|owns?|drives?|rides?|bought|got|(?:have |has )?(?:bought|gotten)"
        rf"|picked up|{_BE} driving) (?:myself |ourselves )?)(?P<o>(?:a|an|two|three|my own"
        rf"|our own|another)\b.+)",
        "owns=owned:o",
        "-",
        "known",
    ),
    (
        "traded",
        r"(?:have |has )?(?:traded(?: in)?|swapped|replaced|exchanged|upgraded)"
        r"(?: from)? (?:my|our|the) (?P<p>.+?) (?:for|with|to) (?P<o>(?:a|an|the) .+)",
        "owns=noun:o; -owns~p",
        "",
        "known",
    ),
    (
        "upgraded",
        r"(?:have |has )?upgraded to (?P<o>(?:a|an|the) (?:new )?[A-Z].+)",
        "owns=noun:o",
        "",
        "known",
    ),
    (
        "sold",
        r"(?:have |has )?(?:sold|got rid of|gave away|donated|lost|crashed|scrapped|returned"
        r"|totaled|totalled) (?:my|our|the) (?P<o>.+)",
        "-owns=owned:o",
        "",
        "known",
    ),
    (
        "switched_to",
        r"(?:have |has )?(?:switched|changed|migrated|moved)(?: over)? from (?P<p>.+?)"
        r" to (?P<o>\w?[A-Z].+)",
        "uses=tool:o; -uses~p",
        "",
        "speaker",
    ),
    (
        "ditched",
        r"(?:have |has )?(?:ditched|dropped|deleted|uninstalled|unsubscribed from|cancelled)"
        r" (?P<o>.+)",
        "-uses~o",
        "",
        "speaker",
    ),
    (
        "uses",
        rf"(?:uses?|{_BE} using|(?:have |has )?(?:started using|switched(?: over)? to))"
        rf" (?P<o>[A-Z].+)",
        "uses=tool:o",
        "-",
        "speaker",
    ),
    # time
    (
        "visited",
        r"(?:have |has )?(?:visited|went to|been to|travell?ed to|been in|went on holiday to"
        r"|vacationed in|backpacked (?:through|across)|flew to) (?P<o>(?:the )?[A-Z].+)",
        "visited=trip:o",
        "",
        "known",
    ),
    (
        "was_in",
        r"(?:was|were) in (?P<o>[A-Z].+?),? (?:last|for|in|on|over|two|three|a|this) .+",
        "visited=trip:o",
        "",
        "known",
    ),
    ("back_from", rf"{_BE} back from (?P<o>[A-Z].+)", "visited=trip:o", "", "known"),
    (
        "bare_job",
        rf"{_BE} (?P<o>[a-z]+(?: [a-z]+){{0,3}}?)(?: (?:from|at|now|for|since|of|in)\b.*)?$",
        "job=bare_job:o",
        "-",
        "known",
    ),
    (
        "wants",
        r"(?:want|wants|would (?:really |absolutely |so )?(?:love|like)|hope|hopes|dream of|am"
        r" hoping|am planning|plan) to (?P<o>(?:visit|learn|buy|become|move|travel|see|study"
        r"|adopt|write|start an?|open|run|climb|go to|get a|get an|have kids|retire|live|build"
        r"|quit|change|publish|own) .+)",
        "wants=wish:o",
        "-",
        "known",
    ),
)


# id | expression of a whole clause | effects on the speaker
_WHOLE: tuple[tuple[str, str, str], ...] = (
    (
        "home_is",
        r"home is (?:now |currently )?(?P<o>(?-i:[A-Z]).+)",
        "lives_in=named_place:o",
    ),
    (
        "is_home",
        r"(?P<o>(?-i:[A-Z])[\w '-]+?) (?:is|has been|has become|became) (?:now |my |our )*"
        r"(?:new )?home(?: now|$| for| since| as of| from)",
        "lives_in=named_place:o",
    ),
    (
        "call_me",
        r"(?:please |you can |just |everyone |everybody |people |(?:my )?friends )*calls? me"
        r" (?P<o>(?-i:[A-Z]).+)",
        "name=names:o",
    ),
    ("name_is", r"(?:the )?name is (?P<o>(?-i:[A-Z]).+)", "name=names:o"),
    (
        "prescribed",
        r"(?:they|(?:my|the|a) (?:doctor|gp|psychiatrist|dermatologist|cardiologist|therapist))"
        r" (?:has |have |just |now )*(?:put me on|prescribed me|prescribed|started me on"
        r"|switched me to) (?P<o>.+)",
        "medication=medication:o",
    ),
    (
        "first_day",
        r"(?:it )?(?:\w+ )?(?:was|is) my first (?:day|week) (?:at|with) (?P<o>.+)",
        "works_at=named_employer:o",
    ),
    (
        "last_day",
        r"(?:it )?(?:\w+ )?was my last (?:day|week) (?:at|with) (?P<o>.+)",
        "worked_at=named_employer:o; -works_at~o",
    ),
    (
        "last_day_was",
        r"my last day (?:at|with) (?P<o>.+?) (?:was|is) .+",
        "worked_at=named_employer:o; -works_at~o",
    ),
    (
        "moved_out",
        r"(?P<o>(?-i:[A-Z])\w+) (?:has |is )?(?:now |just |finally )*(?:moved|moving) out\b",
        "-lives_with~o; -roommate~o",
    ),
    (
        "makes_children",
        r"that (?:is|makes) (?P<o>\w+) (?:kids|children)\b",
        "children=count:o",
    ),
    (
        "let_me_go",
        r"(?:they|the company|my boss) (?:let me go|fired me|laid me off|sacked me)\b",
        "-works_at",
    ),
    (
        "divorce",
        r"(?:my|our|the) divorce (?:is|was|became|went|came) (?:now |finally )*(?:final"
        r"|finali[sz]ed|through|done)",
        "marital_status='divorced'; -partner",
    ),
    (
        "not_together",
        r"(?:we|\w+ and I) are (?:no longer|not) (?:a couple|together)\b",
        "marital_status='single'; -partner",
    ),
    (
        "stolen",
        r"(?:my|our) (?P<o>[\w -]+?) (?:got|was|has been) (?:stolen|totaled|totalled|wrecked)\b",
        "-owns=owned:o",
    ),
    ("stole", r"(?:somebody|someone) stole (?:my|our) (?P<o>.+)", "-owns=owned:o"),
    (
        "one_favourite",
        r"one of my (?:all[- ]time |absolute )*favourite \w+(?: \w+)?(?: of all time)? is"
        r" (?P<o>.+)",
        "likes=favourites:o",
    ),
    (
        "among_favourites",
        r"(?P<o>[\w '-]+?) (?:is|are) (?:absolutely |definitely |also |still |probably"
        r" )*(?:one|some)"
        r" of my (?:all[- ]time |absolute )*favou?rite",
        "likes=things:o",
    ),
    ("no_pets", r"I (?:do not have any|have no) (?:more )?pets\b", "-has_pet; -pet_name"),
    (
        "no_allergies",
        r"I (?:do not have any|have no) (?:food )?allergies\b|I am not allergic to any",
        "-allergic_to",
    ),
    (
        "not_with",
        r"I am (?:no longer|not) (?:with|dating|seeing) (?P<o>(?-i:[A-Z])\w+)",
        "-partner~o",
    ),
    ("nothing_beats", r"nothing beats (?P<o>.+)", "likes=things:o"),
    (
        "is_favourite",
        r"(?P<o>[\w '-]+?) (?:is|are) my (?:all[- ]time |absolute )?favourites?$",
        "likes=things:o",
    ),
)

_EFFECT = re.compile(
    r"(?P<sign>-?)(?P<predicate>\w+)(?:='(?P<words>[^']+)'|=(?P<reader>\w+):(?P<group>\w)"
    r"|~(?P<by>\w+))?"
)


def _effect(text: str) -> Effect:
    match = _EFFECT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no effect")
    parts = match.groupdict()
    return Effect(
        parts["predicate"],
        bool(parts["sign"]),
        parts["reader"] or "",
        parts["group"] or parts["by"] or "",
        parts["words"] or "",
    )


@cache
def clause_expressions() -> tuple[Expression, ...]:
    """Return the expressions of whole clauses; the speaker is their subject."""
    return tuple(
        Expression(
            id, re.compile(when, re.IGNORECASE), tuple(map(_effect, effects.split("; "))), "", "any"
        )
        for id, when, effects in _WHOLE
    )


@cache
def expressions() -> tuple[Expression, ...]:
    """Return the expressions, in the order in which they are tried."""
    return tuple(
        Expression(
            id,
            re.compile(when, re.IGNORECASE if "[A-Z]" not in when else 0),
            tuple(map(_effect, effects.split("; "))),
            negated,
            subjects,  # type: ignore[arg-type]  # the table gives no other word
        )
        for id, when, effects, negated, subjects in _TABLE
    )
