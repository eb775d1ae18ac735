"""List English words whose forms have different stems."""

from __future__ import annotations

IRREGULAR_FORMS = """
    become became
    begin began begun
    blow blew blown
    break broke broken
    bring brought
    build built
    buy bought
    catch caught
    choose chose chosen
    come came
    draw drew drawn
    drink drank drunk
    drive drove driven
    eat ate eaten
    fall fell fallen
    feel felt
    fight fought
    find found
    fly flew flown
    forget forgot forgotten
    get got gotten
    give gave given
    go went gone
    grow grew grown
    hear heard
    hold held
    keep kept
    know knew known
    lend lent
    lose lost
    make made
    meet met
    pay paid
    ride rode ridden
    run ran
    say said
    see saw seen
    sell sold
    send sent
    shoot shot
    sing sang sung
    sit sat
    sleep slept
    speak spoke spoken
    spend spent
    stand stood
    steal stole stolen
    swim swam swum
    take took taken
    teach taught
    tell told
    think thought
    throw threw thrown
    understand understood
    wake woke woken
    wear wore worn
    win won
    write wrote written
    child children
    man men
    woman women
    foot feet
    tooth teeth
    mouse mice
    wife wives
    knife knives
    half halves
    good better best
    bad worse worst
"""
"""A group a line, with the form first that stands for the others."""
