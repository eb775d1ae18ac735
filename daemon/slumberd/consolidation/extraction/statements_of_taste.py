"""The expressions of conversations about health, food, tastes, things and plans."""

from __future__ import annotations

from slumberd.consolidation.extraction.vocabulary import BE, BEEN, HAVE

TASTE: tuple[tuple[str, ...], ...] = (
    # body, food
    (
        "former_diet",
        rf"{BE} (?:a |an )?(?:former|lapsed|ex|recovering|failed|ex-|recovered)[ -]?(?P<o>vegan"
        rf"|vegetarian"
        rf"|pescatarian)\b",
        "-diet~o",
        "",
        "known",
    ),
    (
        "meat_eater",
        rf"(?:{BE}|(?:have |has )?(?:became|become)) (?:a |an )(?:\w+ )?(?:meat"
        rf"|fish)[- ]eater\b(?P<z>.*)",
        "-diet='vegetarian'; -diet='vegan'",
        "",
        "known",
    ),
    (
        "added_to_diet",
        r"(?:have |has )?(?:added|introduced|brought) (?P<o>meat|fish|chicken|dairy|eggs"
        r"|seafood) back\b",
        "-diet; eats=food:o; -avoids~o",
        "",
        "known",
    ),
    (
        "diet",
        rf"(?:{BEEN}|went|goes|go|(?:have |has )?(?:become|became|turned|gone)|eat|eats"
        rf"|keeps?|{BE} eating|follows?|switched to|{BE} on|{BE} doing|stays?|{BE}"
        rf" following)(?: back)?(?: to)?(?: being)? (?:a |an |strictly |fully |mostly |the"
        rf" )?(?P<o>.+?)(?: diet)?$",
        "diet=diet:o",
        "-",
        "any",
    ),
    (
        "quit_diet",
        r"(?:(?:have |has )?(?:quit|stopped|gave up|given up|went off|gone off|ditched|dropped"
        r"|abandoned|ended|left)"
        r"|am (?:done|finished|through) with|am over|am off) (?:on |with )?(?:being |eating "
        r"|going )?(?:my |a |an"
        r" |the |that |this )?(?:whole |strict )?(?P<o>vegan|vegetarian|pescatarian|keto"
        r"|veganism|vegetarianism|paleo|kosher"
        r"|halal)(?P<z>$| (?:diet|thing|lifestyle|phase|life|stuff|for|after|last|this"
        r"|years|months|in"
        r"|when|altogether|entirely)\b.*)",
        "-diet",
        "",
        "known",
    ),
    (
        "eats_meat_again",
        r"(?:have |has )?(?:decided to (?=eat|go)|ended up )?(?:(?:am back|is back|going back"
        r"|(?:have |has )?(?:went|gone|go|goes) back|am going back|returned|have"
        r" returned)(?: to| on| onto)(?: eating| having)?|(?:have |has )?(?:reintroduced|given in"
        r" and started eating)|(?:eats?|am eating|is eating|am having"
        r"|(?:have |has )?(?:started|begun|began|resumed|went back to)"
        r" (?:eating|having|to eat))(?=.* (?:again|now\b|these days|once more))|(?:have |has"
        r" )?(?:started"
        r"|begun|began|resumed) (?:eating|to eat)(?= meat)) (?:some |red |a bit of |a little "
        r")?(?P<o>meat|fish|chicken|dairy|eggs|beef|pork|steak|burgers|bacon|cheese|seafood)\b",
        "-diet; eats=food:o; -avoids~o",
        "",
        "known",
    ),
    (
        "eats_everything",
        r"eats? (?:everything|anything)(?: now| again| these days|$)(?P<z>.*)",
        "-diet",
        "",
        "known",
    ),
    (
        "allergic_to",
        rf"{BEEN} (?:\w+ )?(?:allergic|intolerant) to (?P<o>.+)",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "allergy",
        rf"(?:{HAVE}(?: got)?|developed|have developed|suffer from|suffers from) (?:a |an "
        rf"|got )?(?:severe |bad |mild |serious |terrible |slight )?(?P<o>\w+(?:[ -]\w+)?)"
        rf" allerg(?:y|ies)\b",
        "allergic_to=allergy:o",
        "-",
        "any",
    ),
    (
        "allergy_to",
        rf"(?:{HAVE}(?: got)?|developed|have developed|suffer from) (?:a |an )?(?:severe |bad"
        rf" |mild |serious |terrible |slight )?allerg(?:y|ies) to (?P<o>.+)",
        "allergic_to=allergens:o",
        "-",
        "any",
    ),
    (
        "outgrew",
        r"(?:have |has )?(?:outgrew|outgrown|got over|grew out of|got rid of) (?:my|his|her)"
        r" (?P<o>.+?) allergy\b",
        "-allergic_to=allergy:o",
        "",
        "known",
    ),
    (
        "health",
        rf"(?:(?:was|got|have been|has been) diagnosed (?:with|as)|{HAVE}(?: got| had| developed)?"
        rf"|{BEEN}|suffers? from|{BEEN} (?:suffering from"
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
        rf"(?:takes?|must take|{BEEN} (?:on|taking)|uses?|(?:was|have been|has been|am|is|got)"
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
        r"(?:have |has )?(?:quit|stopped|gave up|given up) (?:doing |playing |learning |going to "
        r"(?:the |my )?|going )?"
        r"(?P<o>(?!(?:crying|laughing|talking|trying|being|thinking|working|texting|caring|worrying"
        r"|feeling|seeing|using|watching|buying|asking|getting|having|wearing|believing|living"
        r"|on|my|the|hope|after|for|because|when|at|by|it|now|and|in)\b)\w.+)",
        "-activity=favourites:o",
        "",
        "known",
    ),
    (
        "back_on",
        rf"{BE} (?:back on|back to drinking|drinking) (?P<o>.+)",
        "drinks=drink:o",
        "",
        "known",
    ),
    ("touches", r"touch(?:es)? (?P<o>.+)", "eats=consumed:o", "avoids", "known"),
    ("drinks_nothing", r"drinks?(?: any)? ?(?:alcohol)?$", "drinks='alcohol'", "avoids", "known"),
    (
        "drinks",
        rf"(?:drinks?|{BE} drinking|started drinking|have started drinking|only drinks?|went"
        rf" back to) (?P<o>.+)",
        "drinks=drink:o",
        "avoids",
        "known",
    ),
    (
        "eats_meat",
        r"(?:eats?|(?:am|is|are) eating|(?:have |has )?(?:started|begun|began) (?:eating|to"
        r" eat))(?: some"
        r"| a bit of| a lot of| a little| only| red| lots of)* (?P<o>(?:meat|fish|beef|pork"
        r"|steak|chicken|lamb"
        r"|bacon|seafood)\b(?![- ](?:free|less|substitutes?|alternatives?))(?:$|,| ).*)",
        "eats=food:o; -diet='vegetarian'; -diet='vegan'",
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
        rf"(?:avoids?|stays? away from|cannot (?:eat|drink|have|tolerate)|{BE} avoiding|{BE}"
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
        r"(?:loves?|likes?|enjoys?|adores?) to (?:go (?=\w+ing\b))?(?P<o>.+)",
        "likes=activity:o",
        "dislikes",
        "known",
    ),
    (
        "likes",
        rf"(?:loves?|likes?|enjoys?|adores?|{BEEN} (?:a )?(?:big |huge |massive |real |great"
        rf" )?fans? of|{BEEN} (?:(?:really|totally|super|very|so|big) )*(?:into|interested in"
        rf"|obsessed with|fond of|keen on|crazy about|addicted to|passionate about|a sucker"
        rf" for)|got into|have gotten into|{HAVE} a (?:thing|passion|soft spot) for|cannot"
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
        rf"(?:{BE} (?:\w+ )?(?:afraid|scared|terrified|frightened) of|{HAVE} (?:a|an) (?:\w+"
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
        rf"{BE} (?:a|an) (?:\w+ )?(?P<o>[A-Z][\w .'-]+?) (?:fan|supporter)\b",
        "supports=team:o",
        "-",
        "known",
    ),
    (
        "listens_to",
        rf"(?:listens?|{BE} listening) to (?P<o>.+)",
        "listens_to=heard:o",
        "",
        "known",
    ),
    (
        "watching",
        rf"(?:{BEEN} (?:watching|binge-watching|binging|rewatching|re-watching)|(?:have"
        rf" )?started watching) (?P<o>.+)",
        "watching=title:o",
        "",
        "known",
    ),
    (
        "reading",
        rf"(?:{BEEN} (?:reading|rereading|re-reading)|(?:have )?started reading) (?P<o>.+)",
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
        rf"(?:collects?|{BE} collecting|started collecting) (?P<o>.+)",
        "collects=nouns:o",
        "-",
        "known",
    ),
    (
        "plays",
        rf"(?:plays?|{BEEN} playing|(?:have |has )?(?:started playing|took up|taken up))"
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
        rf"(?:(?:have|has|owns?|rides?|bought|got|(?:have |has )?(?:bought|gotten)"
        rf"|picked up|{BE} driving) (?:myself |ourselves )?)(?P<o>(?:a|an|two|three|my own"
        rf"|our own|another)\b.+)",
        "owns=owned:o",
        "-",
        "known",
    ),
    (
        "drives",
        r"drives? (?P<o>(?:a|an) (?!.*\b(?:hard|lot|bit|long|way|for|hours?|minutes?|miles|taxi|cab"
        r"|uber"
        r"|bus|few)\b).+)",
        "owns=noun:o",
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
        r"(?:have |has )?(?:ditched|dropped|deleted|uninstalled|unsubscribed from|cancelled"
        r"|stopped using|quit using)"
        r" (?P<o>.+)",
        "-uses~o",
        "",
        "speaker",
    ),
    (
        "uses",
        rf"(?:uses?|{BE} using|(?:have |has )?(?:started using|switched(?: over)? to))"
        rf" (?:an? (?!Uber|Lyft|Airbnb))?(?P<o>[A-Z].+|i(?:Phone|Pad|Mac)\b.*)",
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
    (
        "back_from",
        rf"(?:{BE} back|(?:have |has )?(?:(?:came|come|got|gotten) back|returned)) from"
        rf" (?P<o>[A-Z].+)",
        "visited=trip:o",
        "",
        "known",
    ),
    (
        "bare_job",
        rf"{BE} (?P<o>[a-z]+(?: [a-z]+){{0,3}}?)(?: (?:from|at|now|for|since|of|in)\b.*)?$",
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
"""The id, what follows the subject, the effects, the effect of a negation, and the subjects."""
