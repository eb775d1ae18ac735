"""Know the words that questions use for the predicates of the vocabulary `conversation`.

"Does she have any allergies?" has no word of the fact "mia allergic to peanuts". These words count
for a fact as the name of its speaker counts for an episode. Its vector leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping

_FAVOURITE = "favourite_"

_WORDS: Mapping[str, str] = {
    "age": "old years",
    "allergic_to": "allergy allergies allergen intolerance eat food meal cook",
    "avoids": "eat eats drink food meal cook diet",
    "birth_year": "born age old birthday",
    "birthday": "born birth age",
    "born_in": "birthplace birth from",
    "boss": "manager supervisor",
    "brother": "sibling siblings brothers",
    "children": "kids kid sons daughters",
    "collects": "collection hobby",
    "colleague": "coworker colleagues teammate",
    "daughter": "child children kid kids",
    "diet": "eat eats food meat meal cook",
    "dislikes": "hate hates avoid taste",
    "drinks": "drink beverage beverages",
    "eats": "eat food meal diet",
    "father": "dad parent parents",
    "fears": "afraid scared phobia",
    "friend": "friends buddy",
    "from": "origin hometown country born",
    "graduated_from": "degree university college school graduate",
    "grew_up_in": "childhood hometown raised",
    "habit": "habits routine regularly",
    "handedness": "handed hand",
    "has_child": "kids kid children son daughter",
    "has_pet": "pets animal animals",
    "has_sibling": "siblings brother sister",
    "health": "illness ill sick disease condition medical diagnosis",
    "height": "tall high",
    "hobby": "hobbies pastime fun",
    "job": "work works profession occupation employed career",
    "learning": "learn studying lessons",
    "likes": "love loves enjoy enjoys taste favourite",
    "listens_to": "music listen band podcast",
    "lived_in": "lived home moved previously",
    "lives_in": "home city town country address based resides reside moved",
    "lives_with": "housemate roommate household",
    "marital_status": "spouse wife husband partner relationship",
    "medication": "medicine medicines drug drugs pills treatment",
    "member_of": "club team group membership",
    "mother": "mum mom parent parents",
    "name": "called names",
    "nationality": "citizen citizenship country passport",
    "owns": "car possessions",
    "partner": "spouse husband wife girlfriend boyfriend married",
    "pet_name": "pets animal called names",
    "plans": "plan planning trip going upcoming",
    "plays": "play instrument sport game",
    "prefers": "preference preferences rather",
    "pronouns": "pronoun gender",
    "reading": "book books read",
    "religion": "faith believe religious church",
    "roommate": "housemate flatmate",
    "sister": "sibling siblings sisters",
    "son": "child children kid kids",
    "speaks": "language languages speak",
    "started": "business founded company",
    "studied": "degree major graduate subject",
    "studies": "degree major student subject",
    "studies_at": "university college school student",
    "supports": "team club fan",
    "trait": "personality character",
    "uses": "tool tools software",
    "visited": "travel travelled trip been",
    "volunteers_at": "volunteer charity",
    "wants": "want wish goal dream",
    "watching": "show series film watch",
    "worked_at": "employer employed company previous",
    "works_also_at": "employer employed company second",
    "works_at": "employer employed company job workplace",
    "works_in": "industry field sector job",
    "works_on": "project projects",
}


def words_of_questions(predicate: str) -> str:
    """Return further words by which questions ask for a predicate; empty for an unknown one."""
    if predicate.startswith(_FAVOURITE):
        return "favorite best likes"
    return _WORDS.get(predicate, "")
